// server/cluster/slurm_placement.h: a Slurm cluster, by sbatch, squeue, scancel and scontrol.
//
// docs/slurm.md has what is run and what is concluded; docs/decisions/0100 why by commands. All is
// asked by the attempt's name, which is Slurm's job name: so a job that got an old id is never
// taken for ours nor cancelled, and a second submission under the name is seen and ended with the
// first.
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
  /// For a profile that validate() accepts.
  explicit SlurmPlacement(SlurmProfile profile);

  SubmitAnswer submit(const AttemptIntent& intent) override;
  /// One squeue, by name up to 500 of them, else of all that is this user's: the controller sends
  /// its whole list for each command. For what it does not show, one for each, at most 16 and for
  /// as long as one command may take.
  Result<std::vector<Sighting>> observe(std::span<const PlacementHandle> handles) override;
  Status withdraw(const PlacementHandle& handle) override;
  Result<std::optional<PlacementHandle>> find(const std::string& name) override;
  std::string explain(const PlacementHandle& handle) override;
  PlacementCheck check() override;
  void stop() override { stop_.request_stop(); }

 private:
  CommandAnswer run(const std::string& command, std::vector<std::string> arguments,
                    std::string input = {}) const;
  /// All jobs of this user under these names, and others of this user's if they are many.
  Result<std::vector<SlurmJob>> list(std::span<const std::string> names) const;
  /// The controller's configuration, if it is that of the cluster that it is to be, or was before.
  Result<std::string> confirm_cluster();
  /// What squeue says of one that the list did not show. Nothing: no evidence.
  std::optional<Sighting> look_by_id(const PlacementHandle& handle) const;
  std::vector<Sighting> look_closer(std::span<const PlacementHandle> absent);

  const SlurmProfile profile_;
  const std::string user_;
  std::stop_source stop_;
  Mutex mu_;
  std::string cluster_ TRAINYARD_GUARDED_BY(mu_);
  size_t next_absent_ TRAINYARD_GUARDED_BY(mu_) = 0;  // whose turn it is, of more than 16
};

}  // namespace trainyard::server
