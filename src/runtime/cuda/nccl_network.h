// src/runtime/cuda/nccl_network.h: by which of a host's networks NCCL reaches other hosts.
//
// Left to itself NCCL takes the first interface that does not look like a container's, and where it
// guesses wrong its start waits for ever. The job's processes know better: each has an address at
// which the others have just connected to it.
#pragma once

#include <ifaddrs.h>

#include <string>

namespace trainyard::cuda {

/// The interface that has this numeric address; empty: none of these has it.
std::string find_interface(const ifaddrs* all, const std::string& address);

/// Whether a file of NCCL's settings ("NAME=value" by lines) has one for `name`.
bool is_set_in(const std::string& path, const std::string& name);

/// Before NCCL's first call: NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY lead through the interface
/// that has this address. What an operator has set, in the environment or in NCCL's own files
/// (/etc/nccl.conf, ~/.nccl.conf, NCCL_CONF_FILE), stays. Returns what NCCL goes through, for
/// people: "eth0 (10.0.0.7)".
std::string choose_network(const std::string& address);

}  // namespace trainyard::cuda
