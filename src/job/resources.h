// src/job/resources.h: the plain fields of the resources that a job requests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/field_rows.h"

namespace trainyard {

/// The maximum number of GPUs of a job, of its nodes, and of the GPUs of all its nodes together.
inline constexpr int kRanksOfJobMax = 64;
/// The maximum time limit in seconds: ten years.
inline constexpr double kTimeLimitMax = 315'360'000;

/// The resources that a spec requests. The entries of its list `shard` are in Recipe.
struct ResourceSpec {
  std::string device = "auto";
  int32_t gpus = 1;
  int32_t threads = 0;  // 0: the server's setting
  bool exclusive = false;
  std::string cluster = {};  // empty: the server's own devices
  int32_t nodes = 1;
  int64_t time_limit_seconds = 0;  // 0: no limit
};
inline const std::vector<FieldRow<ResourceSpec>>& field_rows(const ResourceSpec&) {
  using S = ResourceSpec;
  const FieldNames devices = {"auto", "cpu", "gpu"};
  static const std::vector<FieldRow<S>> rows = {
      {"device",
       &S::device,
       "With `auto`, the job gets a GPU if one is suitable, else the CPU.",
       kAnyValue,
       0,
       {},
       devices},
      {"gpus", &S::gpus, "This many GPUs of one model train the job together.",
       from_to(1, kRanksOfJobMax)},
      {"threads", &S::threads,
       "The job computes with this many CPU threads; by default, with as many as the server is set "
       "to.",
       from_to(1, 256), kOffAtZero},
      {"exclusive", &S::exclusive, "The job shares its devices with no other."},
      {"cluster", &S::cluster,
       "The cluster of this name runs the job; by default, the server's own devices do."},
      {"nodes", &S::nodes, "This many nodes of the cluster train the job together.",
       from_to(1, kRanksOfJobMax)},
      {"time_limit_seconds", &S::time_limit_seconds,
       "All attempts of the job together may train this many seconds; by default, there is no "
       "limit.",
       from_to(1, kTimeLimitMax), kOffAtZero},
  };
  return rows;
}

}  // namespace trainyard
