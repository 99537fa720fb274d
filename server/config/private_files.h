// server/config/private_files.h: refuses to start with a state folder or secrets that other users
// could read or change. Whoever may write the state folder can replace a folder in it by a link,
// through which the daemon would write files of its own user.
#pragma once

#include <filesystem>
#include <string>

#include "server/config/config.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Checks the folders in which the daemon writes and the files with secrets. Each error names the
/// command that mends it. FAILED_PRECONDITION/FOLDER_NOT_PRIVATE: the state folder or what is in it
/// belongs to another user or may be written by others, or others may replace it or the socket.
/// FAILED_PRECONDITION/KEY_NOT_PRIVATE: the same for the TLS key, which others must not read
/// either. A state folder that does not exist yet is accepted.
Status check_private_files(const Config& config);

/// Checks a file with a secret, which belongs to the daemon's user or root. `group_may_read`:
/// its group may read it, as that of /etc/ssl/private. Returns why it is not private, with the
/// command, or an empty string.
std::string why_not_private(const std::filesystem::path& path, bool group_may_read);

}  // namespace trainyard::server
