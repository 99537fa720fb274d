// tests/server/placement_support.h: attempts, profiles and fake commands for tests of placements.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "server/cluster/placement.h"
#include "server/cluster/slurm_profile.h"

namespace trainyard::server {

inline constexpr char kTestCertificate[] =
    "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIU+/=\n-----END CERTIFICATE-----\n";

inline AttemptIntent test_intent(const std::string& name = "ty-inst-01jobuid-1") {
  AttemptIntent intent;
  intent.name = name;
  intent.title = "jobs/digits";
  intent.gpus_per_node = 1;
  intent.cpus = 1;
  intent.memory_bytes = 100 << 20;
  intent.time_limit_s = 600;
  intent.attach = "daemon.example:7443";
  intent.certificate_pem = kTestCertificate;
  intent.task = "job-01jobuid.1";
  intent.secret = "c2VjcmV0LW9mLXRoaXMtYXR0ZW1wdA";
  return intent;
}

inline SlurmProfile test_profile() {
  SlurmProfile profile;
  profile.name = "test";
  profile.worker = "/opt/trainyard/trainyard-worker";
  profile.cache = "/var/cache/trainyard";
  profile.command_timeout_ms = 20'000;
  return profile;
}

/// A folder of commands that is deleted with the test.
class CommandFolder {
 public:
  CommandFolder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "trainyard-placement-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~CommandFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  CommandFolder(const CommandFolder&) = delete;
  CommandFolder& operator=(const CommandFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  /// Writes a shell script as `name`. In the script, $folder is this folder.
  std::string write(const std::string& name, std::string_view body) const {
    const std::string file = path_ / name;
    // Renamed into place: if a process forked by another thread had the file open for writing,
    // executing it would fail.
    std::ofstream(file + ".new") << "#!/bin/sh\nfolder='" << path_.string() << "'\n"
                                 << body << "\n";
    ::chmod((file + ".new").c_str(), 0755);
    std::filesystem::rename(file + ".new", file);
    return file;
  }
  /// Returns the content of a file that a command has written; empty if the file does not exist.
  std::string read(const std::string& name) const {
    std::ifstream in(path_ / name, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace trainyard::server
