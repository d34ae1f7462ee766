"""Starting engines and benchmark clients, and recording what they do. The only part that starts processes."""
