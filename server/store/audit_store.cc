#include "server/store/audit_store.h"

#include <spdlog/spdlog.h>

#include <limits>
#include <utility>

#include "server/store/page_token.h"
#include "server/store/store_core.h"

namespace trainyard::server {
namespace {

/// Entries that cannot be stored are still in the log.
void report_lost(int64_t number, const Result<void>& stored) {
  if (stored.ok()) return;
  spdlog::error("event=audit_entry_not_stored number={} reason={}", number, stored.error().reason);
}

std::string signed_query(const AuditQuery& query) {
  return "audit\n" + query.caller + "\n" + query.action + "\n" + query.object + "\n" +
         std::to_string(query.since_us) + "\n" + std::to_string(query.until_us);
}

std::vector<AuditEntry> read_entries(Connection& db, const AuditQuery& query, int64_t before,
                                     int64_t count_max) {
  Query rows(db,
             "SELECT number, time_us, caller, address, action, object, result FROM audit"
             // The caller's text is "alice by ci (token t-12ab)"; names contain no blanks.
             " WHERE number < ?1"
             "  AND (?2 = '' OR caller = ?2 OR substr(caller, 1, length(?2) + 1) = ?2 || ' '"
             "   OR instr(caller || ' ', ' by ' || ?2 || ' ') > 0"
             "   OR instr(caller, '(token ' || ?2 || ')') > 0)"
             "  AND (?3 = '' OR action = ?3)"
             "  AND (?4 = '' OR object = ?4) AND time_us >= ?5 AND (?6 = 0 OR time_us < ?6)"
             " ORDER BY number DESC LIMIT ?7");
  rows.bind(before).bind(query.caller).bind(query.action).bind(query.object);
  rows.bind(query.since_us).bind(query.until_us).bind(count_max);
  std::vector<AuditEntry> entries;
  while (rows.step()) {
    entries.push_back({rows.integer(0), rows.integer(1), rows.text(2), rows.text(3), rows.text(4),
                       rows.text(5), rows.text(6)});
  }
  return entries;
}

/// Returns 0 if it cannot be read: the disk has then failed, and new entries are reported as lost.
int64_t newest_number(StoreCore& core) {
  const Result<int64_t> number = core.read<int64_t>([](Connection& db) -> Result<int64_t> {
    Query query(db, "SELECT coalesce(max(number), 0) FROM audit");
    return query.step() ? query.integer(0) : 0;
  });
  return number.ok() ? *number : 0;
}

}  // namespace

AuditStore::AuditStore(StoreCore& core) : core_(core), newest_(newest_number(core)) {}

int64_t AuditStore::begin(AuditEntry entry) {
  entry.number = ++newest_;
  const int64_t number = entry.number;
  core_.change<void>(
      [entry = std::move(entry)](WriteContext& context) -> Status {
        Query query(context.db,
                    "INSERT INTO audit (number, time_us, caller, address, action, object, result)"
                    " VALUES (?, ?, ?, ?, ?, ?, '')");
        query.bind(entry.number).bind(context.now_us).bind(entry.caller).bind(entry.address);
        query.bind(entry.action).bind(entry.object).run();
        return {};
      },
      [number](const Result<void>& stored) { report_lost(number, stored); }, Urgency::kPatient);
  return number;
}

void AuditStore::end(int64_t number, std::string object, std::string result) {
  core_.change<void>(
      [number, object = std::move(object),
       result = std::move(result)](WriteContext& context) -> Status {
        Query query(context.db,
                    "UPDATE audit SET result = ?1, object = iif(?2 = '', object, ?2)"
                    " WHERE number = ?3 AND result = ''");
        query.bind(result).bind(object).bind(number).run();
        return {};
      },
      [number](const Result<void>& stored) { report_lost(number, stored); }, Urgency::kPatient);
}

Result<AuditPage> AuditStore::list(const AuditQuery& query) const {
  ASSIGN_OR_RETURN(const int64_t page_size, page_size_of(query.page_size));
  int64_t before = std::numeric_limits<int64_t>::max();
  if (!query.page_token.empty()) {
    ASSIGN_OR_RETURN(before,
                     read_page_token(core_.page_token_key, signed_query(query), query.page_token));
  }
  // Entries that still wait for company are committed first, so that the page has every call that
  // has ended. On a full disk this fails, and the page has what is stored.
  (void)core_.change_and_wait<void>([](WriteContext&) -> Status { return {}; });
  return core_.read<AuditPage>([&](Connection& db) -> Result<AuditPage> {
    AuditPage page{read_entries(db, query, before, page_size + 1), {}};
    if (std::ssize(page.entries) > page_size) {
      page.entries.pop_back();
      page.next_page_token =
          make_page_token(core_.page_token_key, signed_query(query), page.entries.back().number);
    }
    return page;
  });
}

Result<int64_t> AuditStore::remove_older(int64_t before_us, int64_t count_max) {
  return core_.change_and_wait<int64_t>([=](WriteContext& context) -> Result<int64_t> {
    Query query(context.db,
                "DELETE FROM audit WHERE number IN"
                " (SELECT number FROM audit WHERE time_us < ? ORDER BY time_us LIMIT ?)");
    query.bind(before_us).bind(count_max).run();
    return context.db.changes();
  });
}

}  // namespace trainyard::server
