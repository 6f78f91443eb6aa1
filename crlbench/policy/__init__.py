"""The model: loading, framing, sampling and log-probabilities.

The only room that imports transformers, peft and bitsandbytes.
"""
