// Tests of the audit table. They fail if a change is stored without its entry, if an entry changes
// after its result, or if entries cost commits of their own.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/store/sqlite.h"
#include "tests/server/fake_clock.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

AuditEntry call(const std::string& action, const std::string& object,
                const std::string& caller = "ada") {
  return {0, 0, caller, "unix", action, object, ""};
}

class StoreAudit : public ::testing::Test {
 protected:
  void reopen() {
    store_.reset();
    store_ = open_or_die(small_options(directory_.path()), clock_);
  }
  AuditStore& audit() { return store_->audit(); }
  /// Returns the selected entries as "CALLER ACTION OBJECT RESULT", newest first.
  std::vector<std::string> lines(const AuditQuery& query = {}) {
    std::vector<std::string> lines;
    const AuditPage page = audit().list(query).value();
    for (const AuditEntry& e : page.entries) {
      lines.push_back(e.caller + " " + e.action + " " + e.object + " " + e.result);
    }
    return lines;
  }
  std::string query_text(const char* sql) {
    Connection db(directory_.path() / "trainyard.db", Connection::Mode::kReadWrite, 100);
    return db.query_text(sql);
  }

  TemporaryDirectory directory_;
  FakeClock clock_;
  std::unique_ptr<Store> store_ = open_or_die(small_options(directory_.path()), clock_);
};

using Lines = std::vector<std::string>;

TEST_F(StoreAudit, EntriesAreListedNewestFirstWithTheirResults) {
  const int64_t first = audit().begin(call("SubmitJob", "digits"));
  const int64_t second = audit().begin(call("CancelJob", "projects/default/jobs/x", "bob"));
  audit().end(second, "", "JOB_NOT_FOUND");
  audit().end(first, "projects/default/jobs/digits", "OK");
  EXPECT_EQ(lines(), (Lines{"bob CancelJob projects/default/jobs/x JOB_NOT_FOUND",
                            "ada SubmitJob projects/default/jobs/digits OK"}));
  const int64_t third = audit().begin(call("Backup", ""));
  EXPECT_EQ(lines().front(), "ada Backup  ") << "the call still runs";
  reopen();
  EXPECT_EQ(lines().size(), 3U);
  EXPECT_GT(audit().begin(call("Backup", "")), third) << "numbers are not used again";
}

TEST_F(StoreAudit, AChangeIsNeverStoredWithoutItsEntryAndSharesItsCommit) {
  store_.reset();
  const pid_t child = ::fork();
  if (child == 0) {
    const std::unique_ptr<Store> store = open_or_die(small_options(directory_.path()));
    store->audit().begin(call("SubmitJob", "digits"));
    ::_exit(store->jobs().submit(new_job("digits")).ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(query_text("SELECT value FROM settings WHERE key = 'commit'"), "1");
  reopen();
  EXPECT_TRUE(store_->jobs().find("default", "digits").ok());
  EXPECT_EQ(lines(), Lines{"ada SubmitJob digits "});
}

TEST_F(StoreAudit, FiltersAndPagesSelectEntries) {
  for (int i = 0; i < 5; ++i) {
    clock_.set_wall(1'000'000 * (i + 1));
    audit().end(audit().begin(call("CancelJob", "job-" + std::to_string(i))), "", "OK");
    audit().end(audit().begin(call("DeleteJob", "job-" + std::to_string(i), "bob")), "", "OK");
    EXPECT_EQ(lines().size(), 2U * static_cast<size_t>(i + 1));  // writes them at this time
  }
  AuditQuery query;
  query.caller = "bob";
  query.page_size = 2;
  EXPECT_EQ(lines(query), (Lines{"bob DeleteJob job-4 OK", "bob DeleteJob job-3 OK"}));
  query.page_token = audit().list(query).value().next_page_token;
  EXPECT_EQ(lines(query), (Lines{"bob DeleteJob job-2 OK", "bob DeleteJob job-1 OK"}));
  query.caller = "ada";
  EXPECT_EQ(audit().list(query).error().reason, "PAGE_TOKEN_INVALID") << "of another query";
  AuditQuery one;
  one.action = "CancelJob";
  one.object = "job-2";
  EXPECT_EQ(lines(one), Lines{"ada CancelJob job-2 OK"});
  AuditQuery times;
  times.since_us = 2'000'000;
  times.until_us = 3'000'000;
  EXPECT_EQ(lines(times), (Lines{"bob DeleteJob job-1 OK", "ada CancelJob job-1 OK"}));
  AuditQuery negative;
  negative.page_size = -1;
  EXPECT_EQ(audit().list(negative).error().reason, "PAGE_SIZE_NEGATIVE");
}

TEST_F(StoreAudit, EntriesAreFoundByPersonServiceAndToken) {
  for (const char* caller :
       {"ada", "ada (token t-1)", "ada by ci (token t-2)", "adam", "ci (token t-2)"}) {
    audit().end(audit().begin(call("CancelJob", caller, caller)), "", "OK");
  }
  const auto count = [&](const std::string& caller) {
    AuditQuery query;
    query.caller = caller;
    return lines(query).size();
  };
  EXPECT_EQ(count("ada"), 3U);
  EXPECT_EQ(count("adam"), 1U);
  EXPECT_EQ(count("ci"), 2U) << "by itself and for others";
  EXPECT_EQ(count("t-2"), 2U);
  EXPECT_EQ(count("t-"), 0U);
  EXPECT_EQ(count("by"), 0U);
}

TEST_F(StoreAudit, AnEntryIsWrittenOnce) {
  const int64_t number = audit().begin(call("CancelJob", "digits"));
  audit().end(number, "", "OK");
  audit().end(number, "other", "FORGED");
  EXPECT_EQ(lines(), Lines{"ada CancelJob digits OK"});
  store_.reset();
  Connection db(directory_.path() / "trainyard.db", Connection::Mode::kReadWrite, 100);
  EXPECT_THROW(db.execute("UPDATE audit SET result = 'FORGED'"), SqliteError);
  EXPECT_THROW(db.execute("UPDATE audit SET caller = 'bob'"), SqliteError);
}

TEST_F(StoreAudit, OldEntriesAreRemovedInPieces) {
  for (int i = 0; i < 4; ++i) {
    clock_.set_wall(1'000'000 * (i + 1));
    audit().end(audit().begin(call("CancelJob", std::to_string(i))), "", "OK");
    EXPECT_EQ(lines().size(), static_cast<size_t>(i + 1));
  }
  EXPECT_EQ(audit().remove_older(3'000'000, 1).value(), 1);
  EXPECT_EQ(lines().size(), 3U);
  EXPECT_EQ(audit().remove_older(3'000'000, 100).value(), 1);
  EXPECT_EQ(audit().remove_older(3'000'000, 100).value(), 0);
  EXPECT_EQ(lines(), (Lines{"ada CancelJob 3 OK", "ada CancelJob 2 OK"}));
}

}  // namespace
}  // namespace trainyard::server
