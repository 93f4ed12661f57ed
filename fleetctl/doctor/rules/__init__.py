"""All rules, one module a family; importing this registers them."""

from fleetctl.doctor.rules import abi as abi
from fleetctl.doctor.rules import abi_host as abi_host
from fleetctl.doctor.rules import arch as arch
from fleetctl.doctor.rules import cfg as cfg
from fleetctl.doctor.rules import cfg_memory as cfg_memory
from fleetctl.doctor.rules import cfg_trees as cfg_trees
from fleetctl.doctor.rules import drv as drv
from fleetctl.doctor.rules import gathered as gathered
from fleetctl.doctor.rules import gpu as gpu
from fleetctl.doctor.rules import model as model
from fleetctl.doctor.rules import net as net
from fleetctl.doctor.rules import pkg as pkg
from fleetctl.doctor.rules import pkg_imported as pkg_imported
from fleetctl.doctor.rules import pkg_installed as pkg_installed
from fleetctl.doctor.rules import svc as svc
from fleetctl.doctor.rules import sys as sys
