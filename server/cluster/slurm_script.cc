#include "server/cluster/slurm_script.h"

#include <algorithm>

#include "server/cluster/command.h"

namespace trainyard::server {
namespace {

constexpr int64_t kMebibyte = 1 << 20;
constexpr size_t kNameBytesMax = 200;
constexpr size_t kCertificateBytesMax = 64 << 10;
constexpr size_t kWordBytesMax = 4096;
constexpr std::string_view kBeginOfPem = "-----BEGIN CERTIFICATE-----";

bool is_small_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool is_alphanumeric(char c) { return is_small_or_digit(c) || (c >= 'A' && c <= 'Z'); }

/// Returns whether `text` has 1 to `bytes_max` bytes, all letters, digits or in `others`.
bool consists_of(std::string_view text, std::string_view others, size_t bytes_max) {
  return !text.empty() && text.size() <= bytes_max &&
         std::all_of(text.begin(), text.end(), [&](char c) {
           return is_alphanumeric(c) || others.find(c) != std::string_view::npos;
         });
}

Status require(bool good, const std::string& field, const std::string& accepted) {
  if (good) return {};
  return field_error("PLACEMENT_FIELD_INVALID", field, accepted);
}

/// Returns whether `text` may be an option's value: neither an option itself nor a list or pattern.
bool is_option_value(const std::string& text) {
  return text.empty() || (text.front() != '-' && consists_of(text, "_.-+@", 128));
}

bool is_absolute_path(const std::string& text) {
  return text.starts_with('/') && text.size() <= kWordBytesMax &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != 127; });
}

void append_unless_empty(std::vector<std::string>& words, const std::string& option,
                         const std::string& value) {
  if (!value.empty()) words.push_back(option + value);
}

/// Variables that the worker gets from its node, because the node's own setup may have set them.
constexpr std::string_view kExported = "PATH,HOME,USER,LANG,TMPDIR,SLURM_TMPDIR,LD_LIBRARY_PATH";
/// Variables of NCCL for transfers between nodes, which the worker also gets from its node.
/// Variables that are not set on the node are not set in the worker either.
constexpr std::string_view kExportedForNccl =
    ",NCCL_SOCKET_IFNAME,NCCL_SOCKET_FAMILY,NCCL_CONF_FILE,NCCL_IB_DISABLE,NCCL_IB_HCA,"
    "NCCL_IB_GID_INDEX,NCCL_NET,NCCL_NET_PLUGIN,NCCL_NET_GDR_LEVEL,NCCL_CROSS_NIC,NCCL_DEBUG";

}  // namespace

bool is_placement_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax && name.front() >= 'a' &&
         name.front() <= 'z' && std::all_of(name.begin(), name.end(), [](char c) {
           return is_small_or_digit(c) || c == '-';
         });
}

Status validate(const SlurmProfile& profile) {
  const std::string prefix = "slurm." + profile.name + ".";
  const auto option = [&](const char* field, const std::string& value) {
    return require(is_option_value(value), prefix + field,
                   "'" + printable(value, 64) +
                       "' is not a valid name in Slurm, expected letters, "
                       "digits and _.-+@, at most 128, not beginning with '-'");
  };
  const auto path = [&](const char* field, const std::string& value) {
    return require(is_absolute_path(value), prefix + field,
                   "'" + printable(value, 64) + "' is not an absolute path");
  };
  const auto number = [&](const char* field, bool good, const char* accepted) {
    return require(good, prefix + field, accepted);
  };
  const Status all[] = {
      require(consists_of(profile.name, "_-", 64), "slurm",
              "the name of a profile has 1 to 64 letters, digits, '_' and '-'"),
      option("cluster", profile.cluster),
      option("partition", profile.partition),
      option("account", profile.account),
      option("qos", profile.qos),
      option("reservation", profile.reservation),
      option("gres_type", profile.gres_type),
      profile.commands.empty() ? Status() : path("commands", profile.commands),
      path("worker", profile.worker),
      path("cache", profile.cache),
      path("output", profile.output),
      number("gpus_per_node", profile.gpus_per_node >= 0 && profile.gpus_per_node <= 64,
             "expected 0 to 64"),
      number("time_limit", profile.time_limit_s >= 0 && profile.time_limit_s <= 31'536'000,
             "expected at most a year (365d)"),
      number("cache_bytes", profile.cache_bytes >= 0, "must not be negative"),
      number("extra_memory", profile.extra_memory_bytes >= 0, "must not be negative"),
      number("command_timeout_ms",
             profile.command_timeout_ms >= 100 && profile.command_timeout_ms <= 600'000,
             "expected 100 to 600000"),
  };
  for (const Status& status : all) {
    if (!status.ok()) return status;
  }
  return {};
}

Status validate(const AttemptIntent& intent) {
  const bool is_certificate =
      intent.certificate_pem.starts_with(kBeginOfPem) &&
      consists_of(intent.certificate_pem, "+/=- \r\n", kCertificateBytesMax);
  const Status all[] = {
      require(is_placement_name(intent.name), "name",
              "expected 1 to 200 lower-case letters, digits and '-', beginning with a letter"),
      require(intent.nodes >= 1, "nodes", "expected 1 or more"),
      require(intent.gpus_per_node >= 0, "gpus_per_node", "must not be negative"),
      require(intent.cpus >= 1, "cpus", "expected 1 or more"),
      require(intent.memory_bytes >= 0, "memory_bytes", "must not be negative"),
      require(intent.time_limit_s >= 0, "time_limit_s", "must not be negative"),
      require(consists_of(intent.attach, ".:[]-_", 300), "attach", "expected HOST:PORT"),
      require(is_certificate, "certificate_pem", "expected a certificate as PEM, at most 64 KiB"),
      require(consists_of(intent.task, "._-", 200), "task",
              "expected letters, digits, '.', '_', '-'"),
      require(consists_of(intent.secret, "_-+/=", 512), "secret",
              "expected 1 to 512 characters of base64"),
  };
  for (const Status& status : all) {
    if (!status.ok()) return status;
  }
  return {};
}

std::string shell_word(std::string_view text) {
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + '\'';
}

std::vector<std::string> sbatch_arguments(const SlurmProfile& profile,
                                          const AttemptIntent& intent) {
  std::vector<std::string> words{
      "--parsable",
      "--job-name=" + intent.name,
      "--dependency=singleton",  // two submissions of one intent do not run at the same time
      "--no-requeue",
      "--export=NONE",
      "--propagate=NONE",  // limits are the node's, not this daemon's
      "--chdir=/tmp",      // the daemon's folder may not exist on the node
      "--input=/dev/null",
      "--output=" + profile.output,
      "--error=" + profile.output,
      "--nodes=" + std::to_string(intent.nodes),
      "--ntasks-per-node=1",
      "--cpus-per-task=" + std::to_string(intent.cpus)};
  append_unless_empty(words, "--comment=", printable(intent.title, 128));
  append_unless_empty(words, "--partition=", profile.partition);
  append_unless_empty(words, "--account=", profile.account);
  append_unless_empty(words, "--qos=", profile.qos);
  append_unless_empty(words, "--reservation=", profile.reservation);
  if (intent.gpus_per_node > 0) {
    const std::string type = profile.gres_type.empty() ? "" : profile.gres_type + ":";
    words.push_back("--gres=gpu:" + type + std::to_string(intent.gpus_per_node));
  }
  if (intent.memory_bytes > 0) {
    // Round each term up separately, so that no sum overflows.
    const int64_t mebibytes = (intent.memory_bytes - 1) / kMebibyte + 1 +
                              (profile.extra_memory_bytes + kMebibyte - 1) / kMebibyte;
    words.push_back("--mem=" + std::to_string(mebibytes) + "M");
  }
  const int64_t limit_s = intent.time_limit_s > 0 ? intent.time_limit_s : profile.time_limit_s;
  if (limit_s > 0) words.push_back("--time=" + std::to_string((limit_s - 1) / 60 + 1));
  return words;
}

std::string job_script(const SlurmProfile& profile, const AttemptIntent& intent) {
  std::string pem = intent.certificate_pem;
  if (!pem.ends_with('\n')) pem += '\n';
  const std::string nodes = std::to_string(intent.nodes);
  std::string out =
      "#!/bin/sh\n"
      "# One attempt of a Trainyard job. The worker receives its task over its connection.\n"
      "# Slurm must not restart it: the server decides about the next attempt.\n"
      "[ \"${SLURM_RESTART_COUNT:-0}\" = 0 ] || exit 75\n";
  out += "PATH=";
  if (!profile.commands.empty()) out += shell_word(profile.commands) + ":";
  out += "\"${PATH:+$PATH:}\"/usr/local/bin:/usr/bin:/bin\nexport PATH\n";
  // Slurm 22.05 does not set the job's end time in the environment. Without a time limit squeue
  // prints NONE or N/A.
  out +=
      "end=${SLURM_JOB_END_TIME:-}\n"
      "if [ -z \"$end\" ]; then\n"
      "  end=$(squeue --noheader --jobs=\"$SLURM_JOB_ID\" --format=%e 2>/dev/null)\n"
      "  case $end in *-*T*) end=$(date -d \"$end\" +%s 2>/dev/null) ;; *) end= ;; esac\n"
      "fi\n";
  // srun passes its standard input to the workers of all nodes, so the nodes need no shared folder.
  // It does not inherit sbatch's options: since 22.05 not even the number of CPUs.
  out += "srun --nodes=" + nodes + " --ntasks=" + nodes +
         " --ntasks-per-node=1 --cpus-per-task=" + std::to_string(intent.cpus) +
         " --kill-on-bad-exit=1 --export=" + std::string(kExported) +
         std::string(intent.nodes > 1 && intent.gpus_per_node > 0 ? kExportedForNccl : "") +
         " \\\n  " + shell_word(profile.worker) + " --attach " + shell_word(intent.attach) +
         " --certificate - --cache " + shell_word(profile.cache) +
         (profile.cache_bytes > 0 ? " --cache-bytes " + std::to_string(profile.cache_bytes) : "") +
         " ${end:+--end-time \"$end\"} --task " + shell_word(intent.task) + " <<'END:OF:INPUT'\n" +
         intent.secret + "\n" + pem + "END:OF:INPUT\n";
  return out;
}

}  // namespace trainyard::server
