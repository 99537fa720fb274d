#include "client/lib/contexts.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>

#include "client/lib/spec_file.h"
#include "src/base/files.h"
#include "src/base/resource_id.h"
#include "src/base/text.h"

namespace trainyard::client {
namespace {

namespace fs = std::filesystem;

constexpr size_t kContextNameCharsMax = 63;
constexpr int64_t kConfigBytesMax = 1 << 20;

/// Returns the file that an option or the environment names; empty: neither does.
fs::path named_config(const ConnectionFlags& flags, const Environment& env) {
  return flags.config_file.empty() ? env("TRAINYARD_CONFIG") : flags.config_file;
}

/// Returns where the user's own file is or would be; empty without a home.
fs::path home_config(const Environment& env) {
  fs::path home = env("XDG_CONFIG_HOME");
  if (home.empty() && !env("HOME").empty()) home = fs::path(env("HOME")) / ".config";
  return home.empty() ? fs::path() : home / "trainyard/config.yaml";
}

fs::path find_config(const ConnectionFlags& flags, const Environment& env) {
  if (fs::path named = named_config(flags, env); !named.empty()) return named;
  std::error_code ignored;
  for (const fs::path& path : {home_config(env), fs::path("/etc/trainyard/client.yaml")}) {
    if (!path.empty() && fs::exists(path, ignored)) return path;
  }
  return {};
}

Status read_context(const spec::Document& document, const spec::Entry& described,
                    const fs::path& folder, Context& context) {
  context.name = described.key;
  if (described.value.kind != spec::Value::Kind::kMap) {
    return config_error(document.describe(described.key_at) + ": context " +
                        quoted_value(described.key) + ": expected fields such as server");
  }
  for (const spec::Entry& entry : described.value.entries) {
    const std::string at = document.describe(entry.key_at) + ": ";
    const spec::Value& value = entry.value;
    if (value.kind != spec::Value::Kind::kScalar) {
      return config_error(at + entry.key + ": expected one value");
    }
    if (entry.key == "server") {
      context.server = value.text;
    } else if (entry.key == "ca_file") {
      context.ca_file = folder / value.text;  // operator/ keeps an absolute path unchanged
    } else if (entry.key == "token_file") {
      context.token_file = folder / value.text;
    } else if (entry.key == "project" && is_resource_id(value.text)) {
      context.project = value.text;
    } else if (entry.key == "project") {
      return config_error(at + "project: " + quoted_value(value.text) + ", expected " +
                          resource_id_rule());
    } else if (entry.key == "plaintext" && (value.text == "true" || value.text == "false")) {
      context.plaintext = value.text == "true";
    } else {
      return config_error(at + "unknown key or bad value: " + quoted_value(entry.key) +
                          ", expected server, ca_file, token_file, project or plaintext (true or "
                          "false)");
    }
  }
  return {};
}

/// Returns a value as YAML: plain if no character needs quotes.
std::string yaml_scalar(const std::string& text) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/:@";
  const bool plain = !text.empty() && text.find_first_not_of(kPlain) == text.npos &&
                     text.find_first_of(".-:@") != 0 && text.back() != ':' && lower(text) != "null";
  return plain ? text : nlohmann::json(text).dump();
}

std::string yaml_of(const Contexts& contexts, const fs::path& folder) {
  std::string text = "# Written by 'trainyard login' and 'trainyard context'; docs/cli.md\n";
  if (!contexts.current.empty()) text += "context: " + yaml_scalar(contexts.current) + "\n";
  if (contexts.list.empty()) return text + "contexts: {}\n";
  text += "contexts:\n";
  const auto relative = [&](const std::string& path) {
    const fs::path inside = fs::path(path).lexically_relative(folder);
    const bool is_inside = !inside.empty() && *inside.begin() != ".." && inside != ".";
    return is_inside ? inside.string() : path;
  };
  for (const Context& context : contexts.list) {
    text += "  " + yaml_scalar(context.name) + ":";
    std::string fields;
    const auto add = [&](const char* key, const std::string& value) {
      if (!value.empty()) fields += "\n    " + std::string(key) + ": " + yaml_scalar(value);
    };
    add("server", context.server);
    add("ca_file", relative(context.ca_file));
    add("token_file", relative(context.token_file));
    add("project", context.project);
    if (context.plaintext) add("plaintext", "true");
    text += (fields.empty() ? " {}" : fields) + "\n";
  }
  return text;
}

/// Returns whether a line of the text is, or ends in, a comment that this program did not write.
bool has_comments(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const bool ours = line.starts_with("# Written by 'trainyard login'");
    if (!ours && (line.starts_with("#") || line.find(" #") != line.npos)) return true;
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return false;
}

}  // namespace

Error config_error(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, "CONFIG_INVALID", std::move(message));
}

const Context* Contexts::find(std::string_view name) const {
  const auto found = std::ranges::find(list, name, &Context::name);
  return found == list.end() ? nullptr : &*found;
}

Context* Contexts::find(std::string_view name) {
  const auto found = std::ranges::find(list, name, &Context::name);
  return found == list.end() ? nullptr : &*found;
}

Context& Contexts::get(const std::string& name) {
  if (Context* found = find(name)) return *found;
  list.emplace_back().name = name;
  return list.back();
}

Status check_context_name(std::string_view name) {
  constexpr std::string_view kFirst =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  const bool good = !name.empty() && name.size() <= kContextNameCharsMax &&
                    kFirst.find(name[0]) != kFirst.npos &&
                    name.find_first_not_of(std::string(kFirst) + "._-") == name.npos;
  if (good) return {};
  return config_error("context " + quoted_value(name) +
                      ": expected 1 to 63 letters, digits and . _ - with a letter or digit first");
}

Result<Contexts> read_contexts(const ConnectionFlags& flags, const Environment& env) {
  Contexts contexts;
  contexts.path = find_config(flags, env);
  if (contexts.path.empty()) return contexts;
  ASSIGN_OR_RETURN(const spec::Document document, read_document_file(contexts.path));
  std::error_code ignored;
  const fs::path folder = fs::absolute(contexts.path, ignored).parent_path();
  for (const spec::Entry& entry : document.root().entries) {
    if (entry.key == "context" && entry.value.kind == spec::Value::Kind::kScalar) {
      contexts.current = entry.value.text;
    } else if (entry.key == "contexts" && entry.value.kind == spec::Value::Kind::kMap) {
      for (const spec::Entry& described : entry.value.entries) {
        Context context;
        if (Status read = read_context(document, described, folder, context); !read.ok()) {
          return std::move(read).error();
        }
        contexts.list.push_back(std::move(context));
      }
    } else {
      return config_error(document.describe(entry.key_at) +
                          ": unknown key or bad value: " + quoted_value(entry.key) +
                          ", expected context (a name) and contexts (a map)");
    }
  }
  return contexts;
}

Result<const Context*> choose_context(const Contexts& contexts, const ConnectionFlags& flags,
                                      const Environment& env) {
  std::string name = flags.context.empty() ? env("TRAINYARD_CONTEXT") : flags.context;
  if (name.empty()) name = contexts.current;
  if (name.empty()) return static_cast<const Context*>(nullptr);
  if (contexts.path.empty()) {
    return config_error("context " + quoted_value(name) +
                        ": there is no configuration file (~/.config/trainyard/config.yaml); "
                        "'trainyard login' and 'trainyard context set' write it");
  }
  if (const Context* chosen = contexts.find(name)) return chosen;
  std::string known;
  for (const Context& context : contexts.list) known += (known.empty() ? "" : ", ") + context.name;
  return config_error("context " + quoted_value(name) + " is not in " + contexts.path.string() +
                      (known.empty() ? ", which has no contexts" : ", which has " + known));
}

Result<fs::path> own_config_file(const ConnectionFlags& flags, const Environment& env) {
  fs::path path = named_config(flags, env);
  if (path.empty()) path = home_config(env);
  if (path.empty()) {
    return config_error(
        "there is no place for the configuration file: expected --config FILE, TRAINYARD_CONFIG "
        "or HOME");
  }
  std::error_code ignored;
  // A link, as managers of configuration files make, stays: the file behind it is replaced.
  return fs::weakly_canonical(fs::absolute(path, ignored), ignored);
}

Status write_contexts(const Contexts& contexts, const fs::path& path, bool* kept_old) {
  *kept_old = false;
  if (Status made = user_files().create_directories(path.parent_path()); !made.ok()) return made;
  if (const auto old = read_file(path, kConfigBytesMax); old.ok() && has_comments(*old)) {
    fs::path aside = path;
    aside += ".old";
    if (Status kept = replace_file(user_files(), aside, *old); !kept.ok()) return kept;
    *kept_old = true;
  }
  return replace_file(user_files(), path, yaml_of(contexts, path.parent_path()));
}

fs::path token_file_of(const fs::path& config, const std::string& context) {
  return config.parent_path() / "tokens" / context;
}

Status write_token(const fs::path& file, const std::string& token) {
  Files& files = user_files();
  const fs::path folder = file.parent_path();
  if (Status made = files.create_directories(folder); !made.ok()) return made;
  // From here on nobody else reaches the files in the folder, whatever their mode is.
  if (::chmod(folder.c_str(), 0700) != 0) return file_error("cannot protect", folder, errno);
  fs::path unfinished = file;
  unfinished += ".tmp";
  const std::string line = token + "\n";
  const std::array<std::span<const std::byte>, 1> parts = {std::as_bytes(std::span(line))};
  Status written = files.write_file(unfinished, parts);
  if (written.ok() && ::chmod(unfinished.c_str(), 0600) != 0) {
    written = file_error("cannot protect", unfinished, errno);
  }
  if (written.ok()) written = files.rename_durable(unfinished, file);
  if (!written.ok()) (void)files.remove_all(unfinished);
  return written;
}

}  // namespace trainyard::client
