"""Local hosts for the demo and the tests: real systemd, journald and sshd."""
