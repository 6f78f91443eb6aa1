"""How are files read and written? Within limits, whoever wrote them; whole, or not at all."""
