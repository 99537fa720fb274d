// src/runtime/cuda/nccl_network.h: chooses the network over which NCCL reaches other hosts.
//
// By default NCCL uses the first interface that does not look like a container's. If that guess is
// wrong, its start waits forever. The job's processes know a working address: the one at which the
// other processes have just connected to this one.
#pragma once

#include <ifaddrs.h>

#include <string>

namespace trainyard::cuda {

/// The name of the interface with this numeric address; empty if no interface has it.
std::string find_interface(const ifaddrs* all, const std::string& address);

/// Whether a file of NCCL settings (one "NAME=value" per line) sets `name`.
bool is_set_in(const std::string& path, const std::string& name);

/// Must be called before NCCL's first call: sets NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY so that
/// NCCL uses the interface with this address. Settings of the operator, in the environment or in
/// NCCL's own files (/etc/nccl.conf, ~/.nccl.conf, NCCL_CONF_FILE), take precedence. Returns a
/// description of the network for users: "eth0 (10.0.0.7)".
std::string choose_network(const std::string& address);

}  // namespace trainyard::cuda
