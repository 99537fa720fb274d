// Fails if a dataset becomes READY without files because its worker died while its outcome was on
// its way to the store.
#include <unistd.h>

#include <fstream>

#include "tests/server/fault_vfs.h"
#include "tests/server/service_support.h"

namespace trainyard::server {
namespace {

/// Delays every sync of the store by 0.5 s, longer than a worker takes to end after it has sent its
/// outcome.
class SlowStore {
 public:
  SlowStore() : usual_(sqlite3_vfs_find(nullptr)), slow_("slow") {
    sqlite3_vfs_register(sqlite3_vfs_find(slow_.name().c_str()), /*makeDflt=*/1);
    slow_.set_hook([](const FileOperation& operation) {
      if (operation.kind == FileOperation::Kind::kSync) ::usleep(500'000);
      return SQLITE_OK;
    });
  }
  ~SlowStore() { sqlite3_vfs_register(usual_, 1); }

 private:
  sqlite3_vfs* const usual_;
  FaultVfs slow_;
};

class ServiceIngest : public ServiceTest {
 protected:
  void set_unattended_ms(int64_t ms) {
    stop();
    change_parts_ = [ms](DaemonParts& parts) { parts.ingest_unattended_ms = ms; };
    start();
  }
  static std::string rows_of(const std::string& id, const std::string& target) {
    std::string rows = id + "," + target + "\n";
    for (int i = 0; i < 60; ++i) rows += std::to_string(i) + "," + "xy"[i % 2] + "\n";
    return rows;
  }
  /// Creates datasets whose ingests do not end, as many as one caller may run. Nobody waits for
  /// them.
  std::vector<v1::Dataset> hold_slots() {
    std::vector<v1::Dataset> held;
    for (const char* id : {"held-a", "held-b", "held-c"}) {
      held.push_back(create_csv(rows_of(id, "held"), id, "held"));
    }
    return held;
  }
  std::unique_ptr<SlowStore> slow_;  // outlives the daemon, which TearDown() ends
};

// Covers the faults F07, I1 and I6.
TEST_F(ServiceIngest, F07AWorkerThatDiesAfterItsOutcomeLosesNoDataset) {
  stop();
  slow_ = std::make_unique<SlowStore>();
  start();
  std::string rows = "a,dies_behind_its_outcome\n";
  for (int i = 0; i < 60; ++i) rows += std::to_string(i) + "," + "xy"[i % 2] + "\n";
  dataset_ = create_csv(rows, "iris", "dies_behind_its_outcome");
  wait_for_ingest();
  const std::string folder = config_.state_dir / "datasets" / dataset_.digest();
  for (int i = 0; i < 60; ++i) {  // meanwhile the daemon notices the end of the process
    ASSERT_EQ(get_dataset(dataset_.name()).state(), v1::Dataset::READY);
    ASSERT_TRUE(std::filesystem::exists(folder + "/schema.json")) << "after " << i * 10 << " ms";
    ::usleep(10'000);
  }
}

// Four archives whose clients had gone held every ingest for 88 s.
TEST_F(ServiceIngest, UnattendedOnesGiveWayToOneThatAClientWaitsFor) {
  set_unattended_ms(100);
  const std::vector<v1::Dataset> held = hold_slots();
  dataset_ = create_csv(rows_of("late", "kind"), "late", "kind");
  wait_for_ingest();
  EXPECT_EQ(dataset_.state(), v1::Dataset::READY);
  std::ofstream(config_.state_dir / "go") << "now";
  for (const v1::Dataset& other : held) {
    dataset_ = other;
    wait_for_ingest();
    EXPECT_EQ(dataset_.state(), v1::Dataset::READY) << "it starts again later";
  }
}

TEST_F(ServiceIngest, OneCallerLeavesASlotToOthers) {
  std::ofstream(root_ / "token") << "other-people another-token-of-20\n";
  std::filesystem::permissions(root_ / "token", std::filesystem::perms::owner_read);
  config_.token_file = root_ / "token";
  config_.listen = "127.0.0.1:0";
  stop();
  start();
  hold_slots();
  const v1::Dataset waits = create_csv(rows_of("late", "kind"), "late", "kind");
  const auto tcp = v1::DatasetService::NewStub(grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(daemon_->port()), grpc::InsecureChannelCredentials()));
  const std::string rows = rows_of("other", "kind");
  v1::Upload uploaded;
  ASSERT_TRUE(upload(rows, &uploaded).ok());
  v1::CreateDatasetRequest request;
  request.set_dataset_id("other");
  v1::DatasetSource& source = *request.mutable_spec()->add_sources();
  source.set_role(v1::DatasetSource::DATA);
  source.set_sha256(sha256_hex(rows));
  request.mutable_spec()->mutable_csv()->set_target("kind");
  const auto call = context();
  call->AddMetadata("authorization", "Bearer another-token-of-20");
  const grpc::Status created = tcp->CreateDataset(call.get(), request, &dataset_);
  ASSERT_TRUE(created.ok()) << created.error_message();
  wait_for_ingest();
  EXPECT_EQ(dataset_.state(), v1::Dataset::READY);
  EXPECT_EQ(get_dataset(waits.name()).state(), v1::Dataset::INGESTING);
}

TEST_F(ServiceIngest, DeletingADatasetEndsItsIngest) {
  stop();
  config_.heartbeat_timeout_seconds = 600;  // the worker is not killed because it is silent
  start();
  const std::vector<v1::Dataset> held = hold_slots();
  dataset_ = create_csv(rows_of("late", "kind"), "late", "kind");
  v1::DeleteDatasetRequest request;
  request.set_name(held[0].name());
  google::protobuf::Empty nothing;
  ASSERT_TRUE(datasets_->DeleteDataset(context().get(), request, &nothing).ok());
  wait_for_ingest();
  EXPECT_EQ(dataset_.state(), v1::Dataset::READY);
  const std::filesystem::path folder = config_.state_dir / "datasets" / held[0].digest();
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(folder); }));
  // The same content can be ingested again.
  std::ofstream(config_.state_dir / "go") << "now";
  dataset_ = create_csv(rows_of("held-a", "held"), "held-a", "held");
  wait_for_ingest();
  EXPECT_EQ(dataset_.state(), v1::Dataset::READY);
}

}  // namespace
}  // namespace trainyard::server
