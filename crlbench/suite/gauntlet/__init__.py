"""May a task be trusted? The rules that every task keeps."""
