"""Starting the ranks of a job and watching them."""
