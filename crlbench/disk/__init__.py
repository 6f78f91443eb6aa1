"""Files, those of strangers too: read within limits, written whole or not at all."""
