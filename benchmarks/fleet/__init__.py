"""A unit deployed to many hosts: fleetctl beside pyinfra, ansible and a script of OpenSSH."""
