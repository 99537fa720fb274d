#include "client/lib/socket_access.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "src/base/text.h"

namespace trainyard::client {
namespace {

constexpr size_t kEntryBytesMax = 1 << 20;  // a group's entry has the names of all its members

std::string user_name(uid_t uid) {
  std::vector<char> buffer(kEntryBytesMax);
  passwd entry{};
  passwd* found = nullptr;
  (void)::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found);
  return found != nullptr ? found->pw_name : std::to_string(uid);
}

/// Sets the group's name and whether it lists the user.
void read_group(gid_t gid, SocketAccess& access) {
  std::vector<char> buffer(kEntryBytesMax);
  group entry{};
  group* found = nullptr;
  (void)::getgrgid_r(gid, &entry, buffer.data(), buffer.size(), &found);
  access.group = found != nullptr ? found->gr_name : std::to_string(gid);
  if (found == nullptr) return;
  for (char** member = found->gr_mem; *member != nullptr; ++member) {
    if (access.user == *member) access.listed = true;
  }
}

}  // namespace

SocketAccess find_socket_access(const std::filesystem::path& path) {
  SocketAccess access{.path = path, .user = user_name(::geteuid())};
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return access;
  access.owner = user_name(info.st_uid);
  if ((info.st_mode & S_IWGRP) != 0) read_group(info.st_gid, access);
  return access;
}

Error refuse_socket(const SocketAccess& access) {
  const auto refuse = [](std::string message) {
    return make_error(ErrorCode::kPermissionDenied, "SOCKET_NOT_ALLOWED", std::move(message));
  };
  const std::string socket = "the server's socket " + access.path.string();
  if (access.owner.empty()) {
    return refuse("the folder of " + socket +
                  " is closed to you; its operator can serve elsewhere, for a group: settings "
                  "'socket' and 'socket_group'");
  }
  if (access.group.empty()) {
    return refuse(socket + " is for the user " + access.owner +
                  " alone; its operator can open it for a group: setting 'socket_group'");
  }
  if (access.listed) {
    return refuse("you are in the group " + access.group + ", which may use " + socket +
                  ", but logged in before: log in again, or run: newgrp " + access.group);
  }
  return refuse("you are not in the group " + access.group + ", which may use " + socket +
                "; run: sudo usermod -aG " + access.group + " " + access.user +
                ", then log in again");
}

}  // namespace trainyard::client
