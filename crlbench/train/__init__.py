"""The loop: one LightningModule, its prompt stream and its callbacks.

The only room that imports lightning.
"""
