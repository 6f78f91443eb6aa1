"""Prompts as token ids: chat templates, frames and spelling, for any tokenizer."""
