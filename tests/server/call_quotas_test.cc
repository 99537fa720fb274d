// Tests of the quotas of calls to models, with a clock that only the test moves.
#include "server/serving/call_quotas.h"

#include <gtest/gtest.h>

#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

class CallQuotasTest : public ::testing::Test {
 protected:
  void set(const std::string& project, const std::string& person, int64_t max) {
    ASSERT_TRUE(store->quotas().set({QuotaKind::kModelCalls, {project, person}, max}).ok());
    ASSERT_TRUE(calls.reload().ok());
  }
  int take_all(const std::string& project, const std::string& person) {
    int taken = 0;
    while (taken < 1000 && calls.take(project, person).ok()) ++taken;
    return taken;
  }

  TemporaryDirectory directory;
  FakeClock clock;
  std::unique_ptr<Store> store = open_or_die(small_options(directory.path()), clock);
  CallQuotas calls{store->quotas(), clock};
};

TEST_F(CallQuotasTest, ABucketHoldsAMinutesCallsAndRefillsEvenly) {
  EXPECT_EQ(take_all("vision", "ada"), 1000) << "without a quota nothing is counted";
  set("vision", "", 60);
  EXPECT_EQ(take_all("vision", "ada"), 60);
  const Status refused = calls.take("vision", "bob");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "QUOTA_EXCEEDED");
  EXPECT_EQ(refused.error().metadata.at("quota"), "model_calls");
  EXPECT_EQ(refused.error().message,
            "the quota model_calls of projects/vision is 60 calls to models in a minute, which are "
            "used; the next is possible in 1 s.");
  EXPECT_TRUE(calls.take("speech", "bob").ok()) << "another project's";
  clock.pass(10'000'000);
  EXPECT_EQ(take_all("vision", "ada"), 10);
  clock.pass(int64_t{3600} * 1'000'000);
  EXPECT_EQ(take_all("vision", "ada"), 60) << "never more than a minute's";
}

TEST_F(CallQuotasTest, ACallTakesFromAllQuotasOrFromNone) {
  set("vision", "", 10);
  set("", "ada", 3);
  EXPECT_EQ(take_all("vision", "ada"), 3);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(calls.take("vision", "ada").ok());
  EXPECT_EQ(take_all("vision", "bob"), 7) << "refused calls of ada cost the project nothing";
  set("vision", "cleo", 0);
  EXPECT_EQ(calls.take("vision", "cleo").error().metadata.at("limit"), "10")
      << "the project's is empty";
  clock.pass(60'000'000);
  EXPECT_EQ(calls.take("vision", "cleo").error().metadata.at("limit"), "0");
}

TEST_F(CallQuotasTest, AChangeDoesNotRefillABucket) {
  set("", "ada", 10);
  EXPECT_EQ(take_all("vision", "ada"), 10);
  set("", "ada", 20);
  EXPECT_EQ(take_all("vision", "ada"), 0);
  clock.pass(60'000'000);
  EXPECT_EQ(take_all("vision", "ada"), 20);
  ASSERT_TRUE(store->quotas().remove(QuotaKind::kModelCalls, {"", "ada"}).ok());
  ASSERT_TRUE(calls.reload().ok());
  EXPECT_EQ(take_all("vision", "ada"), 1000);
}

}  // namespace
}  // namespace trainyard::server
