"""How does a stranger's task run? Its code runs in a confined process and answers questions."""
