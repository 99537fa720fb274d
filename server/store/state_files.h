// server/store/state_files.h: lists the files of the state folder that the store refers to, for
// backups and checks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/store/job_state.h"
#include "server/store/sqlite.h"

namespace trainyard::server {

/// Names have the form that users write: digits-1, digits@2; full names in other projects than
/// kDefaultProject.
struct StateFiles {
  struct Job {
    std::string name;
    std::string project;
    std::string id;
    std::string uid;
    JobState state = JobState::kQueued;
    int64_t checkpoint_step = 0;  // step of the newest checkpoint that was reported; 0: none
    int64_t end_time_us = 0;
    bool ended() const { return is_terminal(state); }
  };
  struct Dataset {
    std::string name;
    std::string digest;
    bool ready = false;  // false: the dataset's folder is missing or incomplete
    // Digests of the uploads from which the dataset was or will be created.
    std::vector<std::string> sources;
  };
  struct Model {
    std::string name;
    std::string job_uid;  // empty: the model is uploaded weights only
    std::string digest;   // digest of the weights
  };
  struct Upload {
    std::string sha256;
    int64_t size_bytes = 0;
    bool complete = false;  // one entry then, for all projects that have this content
    std::string project;
  };
  std::vector<Job> jobs;
  std::vector<Dataset> datasets;
  std::vector<Model> models;
  std::vector<Upload> uploads;
};

/// Must be called inside a read transaction, so that all lists are of the same instant. Throws
/// SqliteError.
StateFiles list_state_files(Connection& db);

/// Returns the number of the newest commit; 0 before the first. Throws SqliteError.
int64_t read_commit(Connection& db);

}  // namespace trainyard::server
