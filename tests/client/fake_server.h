// tests/client/fake_server.h: a server of the API in this process, on a Unix socket, that
// misbehaves on request. It tracks committed sizes and sequence numbers itself, so that it notices
// a client that breaks the API's contract.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "client/lib/client.h"

namespace trainyard::client {

/// The behaviour that a test sets, and the calls that the server saw. Guarded by mu once the server
/// runs.
struct FakeState {
  std::mutex mu;

  // --- settings
  std::map<std::string, v1::Job> jobs;                   // by full name
  std::map<std::string, v1::JobArray> arrays;            // by full name
  std::map<std::string, std::vector<v1::Event>> events;  // by full name
  std::map<std::string, v1::Model> models;
  std::map<std::string, std::string> model_files;  // content by file name
  bool damage_model_files = false;
  bool many_classes = false;      // Predict replies as if there were more than 65,536 classes
  std::string odd_file_name;      // the name of a file that DownloadModel sends
  int submit_unavailable = 0;     // number of submits that fail before anything is stored
  Error submit_error;             // if it has a reason, submits are refused with it
  int64_t watch_cut_events = 0;   // > 0: each stream breaks after this many events
  int watch_batch = 3;            // events per message
  bool watch_ends_early = false;  // the stream ends with OK before the job
  int64_t watch_skip_seq = 0;     // sequence number of an event to omit, against the contract
  int64_t watch_oldest_seq = 1;
  int64_t upload_cut_bytes = 0;  // > 0: each stream breaks after this many bytes
  int upload_damage_chunks = 0;  // number of chunks refused with CHUNK_CHECKSUM_MISMATCH
  Error upload_error;
  Error dataset_error;           // of a CreateDataset call that only validates
  int dataset_polls = 0;         // number of GetDataset calls that return INGESTING
  int dataset_late = 0;          // CreateDataset and GetDataset calls whose answer is too late
  Error dataset_failure;         // if set, ingest fails with it
  int32_t dataset_version = 0;   // newest version; 0: no dataset exists
  bool dataset_changes = false;  // each CreateDataset creates a version
  int gets_max = -1;             // >= 0: after this many calls GetJob finds no job
  bool serving = true;
  std::string backup_fault;  // "digest", "early", "path"
  std::vector<v1::CollectGarbageRequest> collections;
  std::vector<v1::ListAuditRequest> audits;
  std::vector<v1::SetQuotaRequest> quotas;
  std::vector<v1::GetUsageRequest> usages;
  bool garbage = true;  // whether there is something to collect
  v1::JobPlan plan;
  std::string person = "ada";  // whom WhoAmI names
  std::string token_text;      // WhoAmI refuses other tokens, if this is not empty
  std::string token_name;      // of that token, in WhoAmI
  Error people_error;          // if it has a reason, calls of PeopleService are refused with it
  std::vector<v1::Token> tokens;
  std::vector<v1::Project> projects;

  // --- recorded calls
  std::vector<v1::SubmitJobRequest> submits;
  std::vector<double> fork_deadlines_s;  // time left until each fork's deadline
  std::vector<v1::SubmitArrayRequest> array_submits;
  std::vector<v1::ListJobsRequest> lists;
  std::vector<std::string> array_changes;  // names of the calls, such as "CancelArray"
  std::vector<v1::PlanJobRequest> plans;
  std::vector<v1::RetryJobRequest> retries;
  std::vector<v1::ForkJobRequest> forks;
  std::vector<int64_t> watch_after;
  std::map<std::string, std::string> uploads;  // committed bytes by SHA-256
  std::map<std::string, bool> complete;
  std::set<std::string> upload_writers;  // files that an open stream is uploading
  std::string upload_name;               // the name that the last stream uploaded to
  int64_t upload_streams = 0;
  int64_t upload_bytes = 0;  // all bytes received, repeated ones included
  std::vector<std::string> contract_breaks;
  v1::CreateDatasetRequest created;
  std::vector<v1::PredictRequest> predicts;
  std::vector<std::string> authorizations;  // header of each unary job call
  std::vector<std::string> people_calls;    // "SetPerson name: \"bob\"": method and request
};

class FakeServer {
 public:
  FakeServer();
  ~FakeServer();
  FakeState& state() { return *state_; }
  std::string address() const { return "unix:" + socket_.string(); }
  const std::filesystem::path& folder() const { return folder_; }
  Connection connection() const;
  /// Stops listening. start() listens on the same socket again.
  void stop();
  void start();

 private:
  struct Services;
  std::filesystem::path folder_;
  std::filesystem::path socket_;
  std::unique_ptr<FakeState> state_;
  std::unique_ptr<Services> services_;
};

/// Adds "projects/default/jobs/ID" in a state, with `count` events: RUNNING, then metrics with
/// steps 1, 2, ..., and the end if the state is terminal.
void add_job(FakeState& state, const std::string& id, v1::JobState job_state, int count);

}  // namespace trainyard::client
