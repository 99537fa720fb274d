#include "server/config/pool.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "server/config/values.h"
#include "src/base/duration.h"
#include "src/base/files.h"
#include "src/base/join.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

constexpr int64_t kPoolFileBytesMax = 64 << 10;
constexpr size_t kPoolNameMax = 32;

Error invalid(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, "CONFIG_INVALID", std::move(message));
}

struct Key {
  std::string name;
  std::function<Status(PoolConfig&, std::string_view text)> assign;
};

bool is_of(std::string_view text, std::string_view others) {
  return std::ranges::all_of(text, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           others.find(c) != std::string_view::npos;
  });
}

/// A word of the cluster's: a partition, an account. It becomes an argument of a command.
Key word(const char* name, std::string PoolConfig::*member) {
  return {name, [name, member](PoolConfig& pool, std::string_view text) -> Status {
            if (text.empty() || text.size() > 128 || text.front() == '-' || !is_of(text, "._:+-")) {
              return refuse(name, text,
                            "a word of letters, digits and . _ : + - that does not begin with -");
            }
            pool.*member = text;
            return {};
          }};
}

Key path(const char* name, std::filesystem::path PoolConfig::*member) {
  return {name, [name, member](PoolConfig& pool, std::string_view text) -> Status {
            const std::filesystem::path given(text);
            if (!given.is_absolute() || text.size() > 512 || !is_of(text, "/._:+-@%")) {
              return refuse(name, text, "an absolute path of letters, digits and . _ : + - @ %");
            }
            pool.*member = given.lexically_normal();
            return {};
          }};
}

Key number(const char* name, int32_t PoolConfig::*member, int32_t min, int32_t max) {
  return {name, [name, member, min, max](PoolConfig& pool, std::string_view text) -> Status {
            ASSIGN_OR_RETURN(const int64_t value, read_number(name, text, min, max));
            pool.*member = static_cast<int32_t>(value);
            return {};
          }};
}

Key bytes(const char* name, int64_t PoolConfig::*member) {
  return {name, [name, member](PoolConfig& pool, std::string_view text) -> Status {
            ASSIGN_OR_RETURN(pool.*member, read_bytes(name, text, 1));
            return {};
          }};
}

Status assign_name(PoolConfig& pool, std::string_view text) {
  const bool plain = std::ranges::all_of(
      text, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
  if (text.empty() || text.size() > kPoolNameMax || !plain || text.front() == '-') {
    return refuse("name", text,
                  "at most 32 lower-case letters, digits and dashes, not with a dash in front");
  }
  pool.name = text;
  return {};
}

Status assign_kind(PoolConfig& pool, std::string_view text) {
  if (text != "slurm") return refuse("kind", text, "slurm");
  pool.kind = text;
  return {};
}

Status assign_measure_nodes(PoolConfig& pool, std::string_view text) {
  if (text != "true" && text != "false") return refuse("measure_nodes", text, "true or false");
  pool.measure_nodes = text == "true";
  return {};
}

Status assign_price(PoolConfig& pool, std::string_view text) {
  ASSIGN_OR_RETURN(pool.price_per_hour, read_price("price_per_hour", text));
  return {};
}

Status assign_time_limit(PoolConfig& pool, std::string_view text) {
  const std::optional<int64_t> seconds = parse_duration(text);
  if (!seconds || *seconds < 60 || *seconds > int64_t{365} * 86'400) {
    return refuse("time_limit", text, "a time from 60s to 365d such as 12h");
  }
  pool.time_limit_seconds = *seconds;
  return {};
}

const std::vector<Key>& keys() {
  static const std::vector<Key> table = {
      {"name", assign_name},
      {"kind", assign_kind},
      number("cpus", &PoolConfig::cpus, 1, 256),
      bytes("memory", &PoolConfig::memory_bytes),
      number("gpus_per_node", &PoolConfig::gpus_per_node, 0, 64),
      word("gpu_type", &PoolConfig::gpu_type),
      bytes("gpu_memory", &PoolConfig::gpu_memory_bytes),
      {"time_limit", assign_time_limit},
      number("waiting_max", &PoolConfig::waiting_max, 1, 1000),
      number("poll_seconds", &PoolConfig::poll_seconds, 1, 600),
      number("lease_seconds", &PoolConfig::lease_seconds, 30, 604'800),
      path("worker", &PoolConfig::worker),
      path("cache", &PoolConfig::cache),
      bytes("cache_bytes", &PoolConfig::cache_bytes),
      {"measure_nodes", assign_measure_nodes},
      {"price_per_hour", assign_price},
      path("commands", &PoolConfig::commands),
      word("cluster", &PoolConfig::cluster),
      word("partition", &PoolConfig::partition),
      word("account", &PoolConfig::account),
      word("qos", &PoolConfig::qos),
      word("reservation", &PoolConfig::reservation),
      {"output",
       [](PoolConfig& pool, std::string_view text) -> Status {
         if (text.empty() || text.front() != '/' || text.size() > 512 || !is_of(text, "/._:+-@%")) {
           return refuse("output", text, "an absolute path, in which Slurm replaces %j and others");
         }
         pool.output = text;
         return {};
       }},
  };
  return table;
}

Status assign(PoolConfig& pool, const std::string& name, const std::string& value) {
  std::vector<std::string> names;
  for (const Key& key : keys()) {
    if (key.name == name) return key.assign(pool, value);
    names.push_back(key.name);
  }
  const std::optional<std::string> near = nearest_name(name, names);
  return invalid("unknown key " + quoted_value(name) +
                 (near ? ", did you mean '" + *near + "'?" : ", expected one of " + joined(names)));
}

}  // namespace

Result<PoolConfig> parse_pool(std::string_view text, const std::string& origin) {
  PoolConfig pool;
  std::set<std::string> seen;
  const auto take = [&](const std::string& key, const std::string& value) {
    seen.insert(key);
    return assign(pool, key, value);
  };
  if (Status s = read_settings(
          text, origin, [](const std::string&) { return false; }, take);
      !s.ok()) {
    return std::move(s).error();
  }
  for (const char* needed : {"name", "kind", "worker", "cache"}) {
    if (!seen.contains(needed)) {
      return invalid(origin + ": " + needed +
                     " is missing; a pool needs name, kind, worker and cache");
    }
  }
  if (pool.gpus_per_node == 0 && (!pool.gpu_type.empty() || pool.gpu_memory_bytes > 0)) {
    return invalid(origin + ": gpu_type and gpu_memory need gpus_per_node");
  }
  return pool;
}

Result<PoolConfig> load_pool(const std::filesystem::path& file) {
  const Result<std::string> text = read_file(file, kPoolFileBytesMax);
  if (!text.ok()) return invalid("pool: " + text.error().message);
  ASSIGN_OR_RETURN(PoolConfig pool, parse_pool(*text, file.string()));
  pool.file = file;
  return pool;
}

}  // namespace trainyard::server
