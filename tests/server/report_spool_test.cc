// Tests of the spool of a worker's reports: it returns everything that was appended, up to the
// point where a kill or a full disk cut it.
#include "server/protocol/report_spool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <vector>

#include "src/base/files.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

class Spool : public ::testing::Test {
 protected:
  Spool() : path_(fs::temp_directory_path() / ("spool-" + std::to_string(::getpid()))) {}
  ~Spool() override { fs::remove(path_); }

  static v1::WorkerReport report(int64_t number) {
    v1::WorkerReport r;
    r.set_number(number);
    r.mutable_log()->set_text("line " + std::to_string(number));
    return r;
  }
  std::vector<int64_t> numbers(int64_t after = 0) const {
    std::vector<int64_t> out;
    SpoolReader reader = SpoolReader::open(path_, after).value();
    while (const std::optional<v1::WorkerReport> r = reader.next()) {
      EXPECT_EQ(r->log().text(), "line " + std::to_string(r->number()));
      out.push_back(r->number());
    }
    return out;
  }

  const fs::path path_;
};

using Numbers = std::vector<int64_t>;

TEST_F(Spool, ReturnsUnacknowledgedReportsInOrder) {
  EXPECT_EQ(numbers(), Numbers{}) << "there is no file yet";
  ReportSpool spool = ReportSpool::create(path_).value();
  EXPECT_EQ(numbers(), Numbers{});
  for (int64_t n = 1; n <= 5; ++n) ASSERT_TRUE(spool.append(report(n)).ok());
  EXPECT_EQ(numbers(), (Numbers{1, 2, 3, 4, 5}));
  EXPECT_EQ(numbers(3), (Numbers{4, 5}));
  EXPECT_TRUE(spool.sync().ok());
  int64_t offset = 0;
  EXPECT_EQ(spool.read_at(offset)->number(), 1);
  EXPECT_EQ(spool.read_at(offset)->number(), 2);
  ASSERT_TRUE(spool.keep({report(4), report(5)}).ok());
  EXPECT_EQ(numbers(), (Numbers{4, 5}));
  ASSERT_TRUE(spool.append(report(6)).ok());
  EXPECT_EQ(numbers(), (Numbers{4, 5, 6}));
  ASSERT_TRUE(spool.keep({}).ok());
  EXPECT_EQ(spool.bytes(), 0);
  ASSERT_TRUE(spool.append(report(7)).ok());
  EXPECT_EQ(numbers(), Numbers{7});
}

TEST_F(Spool, ATruncatedOrDamagedEndLosesNothingBeforeIt) {
  std::vector<int64_t> ends;
  {
    ReportSpool spool = ReportSpool::create(path_).value();
    for (int64_t n = 1; n <= 3; ++n) {
      ASSERT_TRUE(spool.append(report(n)).ok());
      ends.push_back(spool.bytes());
    }
  }
  const std::string whole = read_file(path_, 1 << 20).value();
  for (int64_t size = ends[2]; size >= 0; --size) {  // for each possible length of the file
    std::ofstream(path_, std::ios::binary) << whole.substr(0, static_cast<size_t>(size));
    Numbers expected;
    for (int64_t n = 1; n <= 3; ++n) {
      if (size >= ends[static_cast<size_t>(n - 1)]) expected.push_back(n);
    }
    EXPECT_EQ(numbers(), expected) << size;
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    std::ofstream(path_, std::ios::binary) << damaged;
    Numbers expected;
    for (int64_t n = 1; n <= 3; ++n) {
      if (static_cast<int64_t>(at) >= ends[static_cast<size_t>(n - 1)]) expected.push_back(n);
    }
    EXPECT_EQ(numbers(), expected) << at;
  }
}

TEST_F(Spool, AFullDiskLeavesWholeRecordsAndNoGap) {
  ::signal(SIGXFSZ, SIG_IGN);
  ReportSpool spool = ReportSpool::create(path_).value();
  for (int64_t n = 1; n <= 2; ++n) ASSERT_TRUE(spool.append(report(n)).ok());
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit tight{static_cast<rlim_t>(spool.bytes() + 5), before.rlim_max};  // half a record
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const Status refused = spool.append(report(3));
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_FALSE(refused.ok());
  EXPECT_FALSE(spool.accepts());
  EXPECT_EQ(numbers(), (Numbers{1, 2}));
  EXPECT_EQ(static_cast<int64_t>(fs::file_size(path_)), spool.bytes()) << "no half of a record";
  ASSERT_TRUE(spool.keep({report(3), report(4)}).ok());
  EXPECT_TRUE(spool.accepts());
  EXPECT_EQ(numbers(), (Numbers{3, 4}));
}

TEST_F(Spool, AMissingFolderIsReportedWithTheFile) {
  const Result<ReportSpool> spool = ReportSpool::create("/nonexistent/reports-1");
  ASSERT_FALSE(spool.ok());
  EXPECT_NE(spool.error().message.find("/nonexistent/reports-1"), std::string::npos);
}

}  // namespace
}  // namespace trainyard
