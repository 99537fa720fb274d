// client/lib/socket_access.h: who may use a Unix socket, for the message to a user who may not.
#pragma once

#include <filesystem>
#include <string>

#include "src/base/result.h"

namespace trainyard::client {

/// Describes a socket that refused a user, by the host's files and groups.
struct SocketAccess {
  std::filesystem::path path;
  std::string user;        // who was refused
  std::string owner = {};  // the socket's user; empty if its folder is closed to `user`
  std::string group = {};  // the group whose members may use it; empty: none
  bool listed = false;     // the group lists `user`, who has not logged in since
};

/// Asks the host about the socket, for the user of this process.
SocketAccess find_socket_access(const std::filesystem::path& path);

/// Returns PERMISSION_DENIED/SOCKET_NOT_ALLOWED with the command that gives access.
Error refuse_socket(const SocketAccess& access);

}  // namespace trainyard::client
