"""How is it shown? Tables, charts and reports of given numbers; `verdict` decides."""
