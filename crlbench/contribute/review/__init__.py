"""Pull requests: who may bring a change, what it changes on the boards, what is answered."""
