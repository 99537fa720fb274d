// connect() of this program and its libraries: passes the sealed address of the daemon, if that is
// meant, because the filter of system calls allows no other (server/sandbox/sealed_address.h).
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "server/sandbox/sealed_address.h"

extern "C" int connect(int socket, const sockaddr* address, socklen_t bytes) {
  const sockaddr_un* const sealed = trainyard::server::sealed_address();
  const auto* const unix_address = reinterpret_cast<const sockaddr_un*>(address);
  if (sealed != nullptr && address->sa_family == AF_UNIX && bytes <= sizeof(sockaddr_un) &&
      std::strncmp(unix_address->sun_path, sealed->sun_path,
                   bytes - offsetof(sockaddr_un, sun_path)) == 0) {
    return static_cast<int>(::syscall(SYS_connect, socket, sealed, sizeof(sockaddr_un)));
  }
  return static_cast<int>(::syscall(SYS_connect, socket, address, bytes));
}
