// server/store/array_store.h: stores arrays of jobs.
//
// An array and all of its members are stored in one transaction, or none of it is. After that each
// member is a job like any other (job_store.h). A request to all members is applied in transactions
// of at most kMembersMax members, so that other changes do not wait for ten thousand; `done` runs
// after the last transaction. The row of the array is deleted together with its last member.
// Thread-safe. Common errors and the form of changes: server/store/store.h.
#pragma once

#include <optional>
#include <string>

#include "server/store/array.h"
#include "server/store/done.h"
#include "src/base/result.h"

namespace trainyard::server {

class StoreCore;

/// The largest number of members that one transaction changes.
inline constexpr int64_t kMembersMax = 64;
/// The largest number of rows in `dependencies` for one array: its members times the jobs that each
/// member waits for.
inline constexpr int64_t kArrayWaitsMax = 20'000;

class ArrayStore {
 public:
  explicit ArrayStore(StoreCore& core) : core_(core) {}

  /// Errors: ALREADY_EXISTS/ARRAY_EXISTS, or JOB_EXISTS if a job or a model has the ID of a member;
  /// INVALID_ARGUMENT/REQUEST_ID_REUSED, or ARRAY_SIZE_INVALID (kArrayWaitsMax); and those of
  /// JobStore::submit().
  void submit(NewArray array, Done<JobArray> done);

  /// Returns the array that an earlier submit with this request created; see
  /// JobStore::find_request().
  Result<std::optional<JobArray>> find_request(const RequestId& request) const;

  /// Durably records the request for every member that has not ended. It skips a member to which
  /// the request does not apply: for example, a pause skips a member that is being cancelled. If
  /// the daemon ends before `done` runs, only some members are changed and the caller must repeat
  /// the request. Errors: NOT_FOUND/ARRAY_NOT_FOUND.
  void steer(std::string project, std::string id, Steering steering, Done<JobArray> done);

  /// Removes at most kMembersMax members of an array that has ended; call it until the result's
  /// `all` is true. Errors: FAILED_PRECONDITION/JOB_STATE_CONFLICT while a member has not ended;
  /// NOT_FOUND/ARRAY_NOT_FOUND.
  Result<RemovedMembers> remove_some(const std::string& project, const std::string& id);

  Result<JobArray> find(const std::string& project,
                        const std::string& id) const;  // error: ARRAY_NOT_FOUND
  /// Returns a page of arrays whose field `array` is left empty. Errors:
  /// INVALID_ARGUMENT/PAGE_TOKEN_INVALID, PAGE_SIZE_NEGATIVE.
  Result<ArrayPage> list(const ArrayQuery& query) const;

 private:
  StoreCore& core_;
};

}  // namespace trainyard::server
