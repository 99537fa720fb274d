// server/store/array_store.h: arrays of jobs.
//
// An array and all of its members are stored in one transaction, or none of it is. After that each
// member is a job like any other (job_store.h). What is asked of all members goes through them in
// pieces of kMembersMax in a transaction, so that other changes do not wait for ten thousand; the
// answer comes after the last piece. The row of the array goes with its last member.
// Thread-safe. Common errors and the form of changes: server/store/store.h.
#pragma once

#include <optional>
#include <string>

#include "server/store/array.h"
#include "server/store/done.h"
#include "src/base/result.h"

namespace trainyard::server {

class StoreCore;

/// Members that one transaction changes at most.
inline constexpr int64_t kMembersMax = 256;
/// Rows of `dependencies` that an array may have: its members times the jobs that each waits for.
inline constexpr int64_t kArrayWaitsMax = 20'000;

class ArrayStore {
 public:
  explicit ArrayStore(StoreCore& core) : core_(core) {}

  /// ALREADY_EXISTS/ARRAY_EXISTS, and JOB_EXISTS for a member whose ID a job or a model has;
  /// INVALID_ARGUMENT/REQUEST_ID_REUSED, ARRAY_SIZE (kArrayWaitsMax); else as JobStore::submit().
  void submit(NewArray array, Done<JobArray> done);

  /// The array that an earlier submit with this request made, as JobStore::find_request().
  Result<std::optional<JobArray>> find_request(const RequestId& request) const;

  /// Durably asks every member that has not ended; a member that cannot be asked, such as one that
  /// is being cancelled for a pause, is left alone. An end of the daemon before the answer leaves
  /// the members that were reached changed: ask again. NOT_FOUND/ARRAY_NOT_FOUND.
  void steer(std::string project, std::string id, Steering steering, Done<JobArray> done);

  /// Removes members of an array that has ended, at most kMembersMax: call it until `all`.
  /// FAILED_PRECONDITION/JOB_STATE_CONFLICT while a member has not ended;
  /// NOT_FOUND/ARRAY_NOT_FOUND.
  Result<RemovedMembers> remove_some(const std::string& project, const std::string& id);

  Result<JobArray> find(const std::string& project,
                        const std::string& id) const;  // ARRAY_NOT_FOUND
  /// Without their `array`. INVALID_ARGUMENT/PAGE_TOKEN_INVALID, PAGE_SIZE_NEGATIVE.
  Result<ArrayPage> list(const ArrayQuery& query) const;

 private:
  StoreCore& core_;
};

}  // namespace trainyard::server
