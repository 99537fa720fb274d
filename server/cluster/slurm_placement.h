// server/cluster/slurm_placement.h: the placement for Slurm clusters, by sbatch, squeue, scancel
// and scontrol.
//
// docs/slurm.md lists the commands and the conclusions; docs/decisions/slurm.md explains the choice
// of commands. All queries use the attempt's name, which is Slurm's job name. So a job that has
// reused an old ID is neither mistaken for ours nor cancelled, and a second submission under the
// same name is found and ended with the first.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "server/cluster/command.h"
#include "server/cluster/placement.h"
#include "server/cluster/slurm_answers.h"
#include "server/cluster/slurm_profile.h"
#include "src/base/mutex.h"

namespace trainyard::server {

class SlurmPlacement final : public Placement {
 public:
  /// `profile` must be valid (validate()).
  explicit SlurmPlacement(SlurmProfile profile);

  SubmitAnswer submit(const AttemptIntent& intent) override;
  /// Runs one squeue, because the controller sends its whole list for each command. It is by name
  /// for up to 500 attempts, else for all jobs of this user. For attempts that it does not show, it
  /// runs one squeue each, at most 16 and for at most as long as one command may take.
  Result<std::vector<Sighting>> observe(std::span<const PlacementHandle> handles) override;
  Status withdraw(const PlacementHandle& handle) override;
  Result<std::optional<PlacementHandle>> find(const std::string& name) override;
  std::string explain(const PlacementHandle& handle) override;
  PlacementCheck check() override;
  void stop() override { stop_.request_stop(); }

 private:
  CommandAnswer run(const std::string& command, std::vector<std::string> arguments,
                    std::string input = {}) const;
  /// Returns all jobs of this user with these names, and if there are many names also others of
  /// this user.
  Result<std::vector<SlurmJob>> list(std::span<const std::string> names) const;
  /// Returns the controller's configuration. An error if the controller is not that of the
  /// profile's cluster or, if the profile names none, of the cluster that responded first.
  Result<std::string> confirm_cluster();
  /// Queries squeue for an attempt that the list did not show. Nothing: no evidence.
  std::optional<Sighting> query_by_id(const PlacementHandle& handle) const;
  std::vector<Sighting> query_absent(std::span<const PlacementHandle> absent);

  const SlurmProfile profile_;
  const std::string user_;
  std::stop_source stop_;
  Mutex mu_;
  std::string cluster_ TRAINYARD_GUARDED_BY(mu_);
  // Index of the next one to query, if more than 16 are absent.
  size_t next_absent_ TRAINYARD_GUARDED_BY(mu_) = 0;
};

}  // namespace trainyard::server
