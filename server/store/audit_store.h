// server/store/audit_store.h: who asked the server to change something or to hand out data, and
// what came of it. Thread-safe; see server/store/store.h.
//
// A call's entry is queued before its change, and the writer keeps that order, so no change is
// stored without its entry, except on a full disk, where only changes that end something are
// stored. Entries are patient (Urgency::kPatient): they share the commit of the call's change.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/result.h"

namespace trainyard::server {

class StoreCore;

struct AuditEntry {
  int64_t number = 0;
  int64_t time_us = 0;
  std::string caller;  // Principal::text()
  std::string address;
  std::string action;
  std::string object;
  std::string result;  // OK, or an error's reason; empty before the call has ended
};

/// Selects entries; empty texts and zeros select all.
struct AuditQuery {
  std::string caller;  // a person, a service or a token's ID
  std::string action;
  std::string object;    // equal to the entry's object
  int64_t since_us = 0;  // not older than this
  int64_t until_us = 0;  // older than this
  int32_t page_size = 0;
  std::string page_token;
};

struct AuditPage {
  std::vector<AuditEntry> entries;  // newest first
  std::string next_page_token;
};

class AuditStore {
 public:
  explicit AuditStore(StoreCore& core);

  /// Queues the entry and returns its number. The store fills in number and time.
  int64_t begin(AuditEntry entry);
  /// Queues the result of a call that has ended. `object` replaces the entry's unless it is empty.
  void end(int64_t number, std::string object, std::string result);

  /// Errors: PAGE_SIZE_NEGATIVE, PAGE_TOKEN_INVALID.
  Result<AuditPage> list(const AuditQuery& query) const;
  /// Deletes at most `count_max` of the entries older than `before_us`, oldest first, and returns
  /// how many it deleted.
  Result<int64_t> remove_older(int64_t before_us, int64_t count_max);

 private:
  StoreCore& core_;
  std::atomic<int64_t> newest_;  // number of the newest entry
};

}  // namespace trainyard::server
