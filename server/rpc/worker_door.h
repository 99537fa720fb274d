// server/rpc/worker_door.h: what lets workers from elsewhere in, and nobody else
// (docs/decisions/0102).
//
// Two files in the folder `workers` of the state folder, both 0600 and made at first use:
//   identity.pem   the private key (EC P-256) and the certificate of the workers' port, signed by
//                  itself, good for 20 years: a worker trusts exactly this certificate
//   enrolment.key  32 random bytes, from which the secret of each task follows
// Backups do not hold them. Where they are lost new ones are made, and workers that run, or that
// wait in a queue with an old secret, are refused.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "src/base/result.h"

namespace trainyard::server {

/// Thread-safe once it is opened, but for set_port().
class WorkerDoor {
 public:
  /// `listen` and `advertise`: Config::workers_listen and workers_advertise. FAILED_PRECONDITION/
  /// WORKER_IDENTITY_INVALID for a file that is there and cannot be used; errors of the file
  /// system.
  static Result<std::unique_ptr<WorkerDoor>> open(const std::filesystem::path& state_dir,
                                                  std::string listen, std::string advertise);

  /// For workers (--certificate).
  std::string certificate_pem() const { return certificate_; }
  /// For the port alone.
  const std::string& key_pem() const { return key_; }
  /// host:port for workers (--attach).
  std::string attach_address() const;
  /// The secret of a task, the first line of its worker's standard input. The same after a restart.
  std::string enrolment_secret(const std::string& task) const;

  /// The port that was bound, where workers_listen leaves it open.
  void set_port(int port) { port_ = port; }

 private:
  WorkerDoor() = default;

  std::string listen_, advertise_;
  int port_ = 0;
  std::string certificate_, key_;  // PEM
  std::string enrolment_key_;
};

}  // namespace trainyard::server
