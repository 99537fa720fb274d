// client/lib/contexts.h: the configuration file: named contexts, each a server with the credentials
// and the project to use there.
//
//   context: lab
//   contexts:
//     lab: {server: "gpu1.example:7443", ca_file: ca.pem, token_file: tokens/lab, project: vision}
//
// `trainyard login` and `trainyard context` write the file. Tokens are in files of their own, in
// the folder `tokens` beside it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "client/lib/connection.h"
#include "src/base/result.h"

namespace trainyard::client {

struct Context {
  std::string name;
  std::string server = {};      // empty: the usual sockets
  std::string ca_file = {};     // absolute path, or empty
  std::string token_file = {};  // absolute path, or empty
  std::string project = {};     // a project's ID; empty: "default"
  bool plaintext = false;
};

struct Contexts {
  std::filesystem::path path;  // of the file that was read; empty: there is none
  std::string current;         // the field `context`; empty: none
  std::vector<Context> list;   // in the order of the file

  const Context* find(std::string_view name) const;
  Context* find(std::string_view name);
  /// Returns the context with this name, which is added if it is new.
  Context& get(const std::string& name);
};

/// Returns CONFIG_INVALID with the message.
Error config_error(std::string message);

/// Refuses names that a context may not have: expected are 1 to 63 letters, digits and . _ - with a
/// letter or digit first.
Status check_context_name(std::string_view name);

/// Reads the configuration file; without one, the result is empty. CONFIG_INVALID names line and
/// column.
Result<Contexts> read_contexts(const ConnectionFlags& flags, const Environment& env);
/// Returns the context that the option, the environment or the file names; nullptr: none.
/// CONFIG_INVALID if the named one does not exist.
Result<const Context*> choose_context(const Contexts& contexts, const ConnectionFlags& flags,
                                      const Environment& env);

/// Returns the file that write_contexts() writes: the one that option or environment name, else the
/// user's own, even if the machine's was read. CONFIG_INVALID without HOME.
Result<std::filesystem::path> own_config_file(const ConnectionFlags& flags, const Environment& env);
/// Replaces the configuration file `path`, atomically. If the old file had comments, it is kept as
/// `path`.old and `kept_old` is set.
Status write_contexts(const Contexts& contexts, const std::filesystem::path& path, bool* kept_old);

/// Returns the file for the token of a context, in the folder `tokens` beside the configuration.
std::filesystem::path token_file_of(const std::filesystem::path& config,
                                    const std::string& context);
/// Writes a token with mode 0600 into a folder with mode 0700, atomically.
Status write_token(const std::filesystem::path& file, const std::string& token);

}  // namespace trainyard::client
