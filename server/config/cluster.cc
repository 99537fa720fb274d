#include "server/config/cluster.h"

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

constexpr int64_t kClusterFileBytesMax = 64 << 10;
constexpr size_t kClusterNameMax = 32;

Error invalid(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, "CONFIG_INVALID", std::move(message));
}

struct Key {
  std::string name;
  std::function<Status(ClusterConfig&, std::string_view text)> assign;
};

bool is_of(std::string_view text, std::string_view others) {
  return std::ranges::all_of(text, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           others.find(c) != std::string_view::npos;
  });
}

/// Returns the key of a name that the cluster defines, such as a partition or an account. The name
/// becomes an argument of a command, so its characters are restricted.
Key word(const char* name, std::string ClusterConfig::*member) {
  return {name, [name, member](ClusterConfig& cluster, std::string_view text) -> Status {
            if (text.empty() || text.size() > 128 || text.front() == '-' || !is_of(text, "._:+-")) {
              return refuse(name, text,
                            "a word of letters, digits and . _ : + - that does not begin with -");
            }
            cluster.*member = text;
            return {};
          }};
}

Key path(const char* name, std::filesystem::path ClusterConfig::*member) {
  return {name, [name, member](ClusterConfig& cluster, std::string_view text) -> Status {
            const std::filesystem::path given(text);
            if (!given.is_absolute() || text.size() > 512 || !is_of(text, "/._:+-@%")) {
              return refuse(name, text, "an absolute path of letters, digits and . _ : + - @ %");
            }
            cluster.*member = given.lexically_normal();
            return {};
          }};
}

Key number(const char* name, int32_t ClusterConfig::*member, int32_t min, int32_t max) {
  return {name, [name, member, min, max](ClusterConfig& cluster, std::string_view text) -> Status {
            ASSIGN_OR_RETURN(const int64_t value, read_number(name, text, min, max));
            cluster.*member = static_cast<int32_t>(value);
            return {};
          }};
}

Key bytes(const char* name, int64_t ClusterConfig::*member) {
  return {name, [name, member](ClusterConfig& cluster, std::string_view text) -> Status {
            ASSIGN_OR_RETURN(cluster.*member, read_bytes(name, text, 1));
            return {};
          }};
}

Status assign_name(ClusterConfig& cluster, std::string_view text) {
  const bool plain = std::ranges::all_of(
      text, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
  if (text.empty() || text.size() > kClusterNameMax || !plain || text.front() == '-') {
    return refuse("name", text,
                  "at most 32 lower-case letters, digits and dashes, not beginning with a dash");
  }
  cluster.name = text;
  return {};
}

Status assign_kind(ClusterConfig& cluster, std::string_view text) {
  if (text != "slurm") return refuse("kind", text, "slurm");
  cluster.kind = text;
  return {};
}

Status assign_measure_nodes(ClusterConfig& cluster, std::string_view text) {
  if (text != "true" && text != "false") return refuse("measure_nodes", text, "true or false");
  cluster.measure_nodes = text == "true";
  return {};
}

Status assign_price(ClusterConfig& cluster, std::string_view text) {
  ASSIGN_OR_RETURN(cluster.price_per_hour, read_price("price_per_hour", text));
  return {};
}

Status assign_time_limit(ClusterConfig& cluster, std::string_view text) {
  const std::optional<int64_t> seconds = parse_duration(text);
  if (!seconds || *seconds < 60 || *seconds > int64_t{365} * 86'400) {
    return refuse("time_limit", text, "a time from 60s to 365d such as 12h");
  }
  cluster.time_limit_seconds = *seconds;
  return {};
}

const std::vector<Key>& keys() {
  static const std::vector<Key> table = {
      {"name", assign_name},
      {"kind", assign_kind},
      number("cpus", &ClusterConfig::cpus, 1, 256),
      bytes("memory", &ClusterConfig::memory_bytes),
      number("gpus_per_node", &ClusterConfig::gpus_per_node, 0, 64),
      word("gpu_type", &ClusterConfig::gpu_type),
      bytes("gpu_memory", &ClusterConfig::gpu_memory_bytes),
      {"time_limit", assign_time_limit},
      number("waiting_max", &ClusterConfig::waiting_max, 1, 1000),
      number("poll_seconds", &ClusterConfig::poll_seconds, 1, 600),
      number("lease_seconds", &ClusterConfig::lease_seconds, 30, 604'800),
      path("worker", &ClusterConfig::worker),
      path("cache", &ClusterConfig::cache),
      bytes("cache_bytes", &ClusterConfig::cache_bytes),
      {"measure_nodes", assign_measure_nodes},
      {"price_per_hour", assign_price},
      path("commands", &ClusterConfig::commands),
      word("cluster", &ClusterConfig::slurm_cluster),
      word("partition", &ClusterConfig::partition),
      word("account", &ClusterConfig::account),
      word("qos", &ClusterConfig::qos),
      word("reservation", &ClusterConfig::reservation),
      {"output",
       [](ClusterConfig& cluster, std::string_view text) -> Status {
         if (text.empty() || text.front() != '/' || text.size() > 512 || !is_of(text, "/._:+-@%")) {
           return refuse("output", text, "an absolute path, in which Slurm replaces %j and others");
         }
         cluster.output = text;
         return {};
       }},
  };
  return table;
}

Status assign(ClusterConfig& cluster, const std::string& name, const std::string& value) {
  std::vector<std::string> names;
  for (const Key& key : keys()) {
    if (key.name == name) return key.assign(cluster, value);
    names.push_back(key.name);
  }
  const std::optional<std::string> near = nearest_name(name, names);
  return invalid("unknown key " + quoted_value(name) +
                 (near ? ", did you mean '" + *near + "'?" : ", expected one of " + joined(names)));
}

}  // namespace

Result<ClusterConfig> parse_cluster(std::string_view text, const std::string& origin) {
  ClusterConfig cluster;
  std::set<std::string> seen;
  const auto take = [&](const std::string& key, const std::string& value) {
    seen.insert(key);
    return assign(cluster, key, value);
  };
  if (Status s = read_settings(
          text, origin, [](const std::string&) { return false; }, take);
      !s.ok()) {
    return std::move(s).error();
  }
  for (const char* needed : {"name", "kind", "worker", "cache"}) {
    if (!seen.contains(needed)) {
      return invalid(origin + ": " + needed +
                     " is missing; a cluster needs name, kind, worker and cache");
    }
  }
  if (cluster.gpus_per_node == 0 && (!cluster.gpu_type.empty() || cluster.gpu_memory_bytes > 0)) {
    return invalid(origin + ": gpu_type and gpu_memory need gpus_per_node");
  }
  return cluster;
}

Result<ClusterConfig> load_cluster(const std::filesystem::path& file) {
  const Result<std::string> text = read_file(file, kClusterFileBytesMax);
  if (!text.ok()) return invalid("cluster: " + text.error().message);
  ASSIGN_OR_RETURN(ClusterConfig cluster, parse_cluster(*text, file.string()));
  cluster.file = file;
  return cluster;
}

}  // namespace trainyard::server
