// server/rpc/worker_endpoint.h: the keys with which the daemon and its remote workers authenticate
// each other (docs/decisions/remote-workers.md).
//
// They are two files in the folder `workers` of the state folder, created at first use, mode 0600:
//   identity.pem   the private key (EC P-256) and the self-signed certificate of the workers' port,
//                  valid for 20 years: a worker trusts exactly this certificate
//   enrolment.key  32 random bytes, from which the secret of each task is derived
// Backups do not contain these files. If the files are lost, new ones are created, and workers that
// run, or that wait in a cluster queue with an old secret, are refused.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "src/base/result.h"

namespace trainyard::server {

/// Thread-safe after open(), except set_port().
class WorkerEndpoint {
 public:
  /// `listen` and `advertise` are Config::workers_listen and workers_advertise. File system errors;
  /// FAILED_PRECONDITION/WORKER_IDENTITY_INVALID for an existing file that cannot be used.
  static Result<std::unique_ptr<WorkerEndpoint>> open(const std::filesystem::path& state_dir,
                                                      std::string listen, std::string advertise);

  /// Checks the files that an earlier open() created; without them there is nothing to check. The
  /// same errors as open().
  static Status check(const std::filesystem::path& state_dir);

  /// Returns the certificate in PEM that workers get (--certificate).
  std::string certificate_pem() const { return certificate_; }
  /// Returns the private key in PEM, which only the listener of the port uses.
  const std::string& key_pem() const { return key_; }
  /// Writes the key and the certificate to a file that only the daemon's user and the group's
  /// members can read, for a front end that serves the workers. File system errors.
  Status write_identity(const std::filesystem::path& path, std::optional<gid_t> group) const;
  /// Returns the host:port that workers connect to (--attach).
  std::string attach_address() const;
  /// Returns the secret of a task, which its worker reads as the first line of standard input. It
  /// stays the same after a restart.
  std::string enrolment_secret(const std::string& task) const;

  /// Sets the port that was bound, for a workers_listen whose port is 0.
  void set_port(int port) { port_ = port; }

 private:
  WorkerEndpoint() = default;

  std::string listen_, advertise_;
  int port_ = 0;
  std::string certificate_, key_;  // PEM
  std::string enrolment_key_;
};

}  // namespace trainyard::server
