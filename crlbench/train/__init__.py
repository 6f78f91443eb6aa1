"""What is the training loop? One LightningModule, its prompt stream and its callbacks.

The only room that imports lightning.
"""
