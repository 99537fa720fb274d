// server/sandbox/sealed_address.h: the only address to which a training worker may connect.
//
// A training worker connects again after a restart of the daemon. The filter of system calls cannot
// read the address of connect(), only compare its pointer. So the daemon's address lies in memory
// that the process cannot change or replace any more (mseal, Linux 6.10), and the filter allows
// that pointer alone. An older kernel cannot seal; there an attacker who runs code in the worker
// could put another address at this place.
#pragma once

#include <sys/un.h>

#include <filesystem>

namespace trainyard::server {

/// Seals the address of a Unix socket; later calls change nothing and return the first address.
/// Null if the path is empty or too long, or if there is no memory. Call it while there is one
/// thread.
const sockaddr_un* seal_address(const std::filesystem::path& socket);
/// Returns the sealed address; null before seal_address().
const sockaddr_un* sealed_address();
/// Returns whether the kernel can seal memory.
bool can_seal_memory();

}  // namespace trainyard::server
