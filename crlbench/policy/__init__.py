"""What is the model? Loading, chat templates, sampling and log-probabilities.

The only room that imports transformers, peft and bitsandbytes.
"""
