// Tests of the inventory with a scripted NVML, with /proc files written by the test, and without
// NVML and /proc.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "server/inventory/checked_inventory.h"
#include "server/inventory/fake_inventory.h"
#include "server/inventory/inventory.h"
#include "server/inventory/xid.h"
#include "tests/server/fake_clock.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

class InventoryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "inventory_XXXXXX").string();
    directory = ::mkdtemp(pattern.data());
    options.cuda_module = write("libtrainyard_cuda.so", "");
    options.cpuinfo = write("cpuinfo", "processor\t: 0\nmodel name\t: Fast CPU 9000\n\n");
    options.meminfo =
        write("meminfo", "MemTotal:  8388608 kB\nMemFree: 1 kB\nMemAvailable:  6291456 kB\n");
    options.nvml_library = FAKE_NVML_LIBRARY;
    script("devices=2");
  }
  void TearDown() override { fs::remove_all(directory); }
  fs::path write(const char* name, const std::string& text) {
    std::ofstream(directory / name) << text;
    return directory / name;
  }
  static void script(const char* text) { ::setenv("TRAINYARD_NVML_SCRIPT", text, 1); }

  fs::path directory;
  InventoryOptions options;
};

TEST_F(InventoryTest, CpuIsReadFromProc) {
  options.cpu_slots = 3;
  const Device cpu = make_local_inventory(options)->read().devices.at(0);
  EXPECT_EQ(cpu.name, "devices/cpu");
  EXPECT_EQ(cpu.model, "Fast CPU 9000");
  EXPECT_EQ(cpu.memory_bytes, int64_t{8} << 30);
  EXPECT_EQ(cpu.memory_used_bytes, int64_t{2} << 30);
  EXPECT_EQ(cpu.slots, 3);
  EXPECT_GE(cpu.cores, 1);
  EXPECT_EQ(cpu.health, DeviceHealth::kHealthy);
}

TEST_F(InventoryTest, CpuOfThisMachineIsRead) {
  const Device cpu = make_local_inventory({})->read().devices.at(0);
  EXPECT_GT(cpu.memory_bytes, int64_t{64} << 20);
  EXPECT_GT(cpu.memory_used_bytes, 0);
  EXPECT_LE(cpu.memory_used_bytes, cpu.memory_bytes);
}

TEST_F(InventoryTest, UnreadableProcIsUnknownAndNotAnError) {
  options.cpuinfo = directory / "none";
  options.meminfo = write("meminfo2", "MemTotal: many kB\n");
  const Device cpu = make_local_inventory(options)->read().devices.at(0);
  EXPECT_EQ(cpu.model, "CPU");
  EXPECT_EQ(cpu.health, DeviceHealth::kUnknown);
  EXPECT_TRUE(cpu.schedulable);
}

TEST_F(InventoryTest, GpusAreListedByNvml) {
  const Devices d = make_local_inventory(options)->read();
  ASSERT_EQ(d.devices.size(), 3u);
  EXPECT_EQ(d.devices[2].name, "devices/gpu-1");
  EXPECT_EQ(d.devices[2].kind, DeviceKind::kGpu);
  EXPECT_EQ(d.devices[2].model, "NVIDIA H200");
  EXPECT_EQ(d.devices[2].uuid, "GPU-1");
  EXPECT_EQ(d.devices[2].capability, 90);
  EXPECT_EQ(d.devices[2].memory_bytes, int64_t{141} << 30);
  EXPECT_EQ(d.devices[2].memory_used_bytes, int64_t{1} << 30);
  EXPECT_TRUE(d.devices[2].schedulable);
  EXPECT_EQ(d.note, "");
}

TEST_F(InventoryTest, TheEnergyCounterIsReadIfTheGpuHasOne) {
  script("devices=1");
  EXPECT_FALSE(make_local_inventory(options)->read().devices.at(1).energy_joules);
  script("devices=2,mig=1,mj=1500");
  const Devices d = make_local_inventory(options)->read();
  ASSERT_EQ(d.devices.size(), 3u);
  EXPECT_FALSE(d.devices[1].energy_joules) << "an instance shares its GPU's counter";
  EXPECT_EQ(d.devices[2].energy_joules, 1.5);
}

TEST_F(InventoryTest, AGpuWithoutBfloat16IsKnown) {
  script("devices=1,cc=75");
  const Devices d = make_local_inventory(options)->read();
  EXPECT_EQ(d.devices.at(1).capability, 75);
  EXPECT_FALSE(has_bf16(d.devices[1]));
  EXPECT_TRUE(has_bf16(d.devices[0])) << "the CPU";
}

TEST_F(InventoryTest, WithoutNvmlTheNoteSaysWhatToInstall) {
  options.nvml_library = "libnvidia-ml-that-is-not-there.so.1";
  const Devices d = make_local_inventory(options)->read();
  ASSERT_EQ(d.devices.size(), 1u);
  EXPECT_NE(d.note.find("install the NVIDIA driver"), std::string::npos) << d.note;
  options.use_gpu = false;
  EXPECT_NE(make_local_inventory(options)->read().note.find("configuration"), std::string::npos);
}

TEST_F(InventoryTest, LibraryThatIsNotNvmlIsNamed) {
  options.nvml_library = "libm.so.6";
  const Devices d = make_local_inventory(options)->read();
  EXPECT_NE(d.note.find("nvmlInit_v2"), std::string::npos) << d.note;
}

TEST_F(InventoryTest, ADriverThatIsNotLoadedIsReportedAndRetried) {
  script("init=9");
  const std::unique_ptr<Inventory> inventory = make_local_inventory(options);
  const Devices d = inventory->read();
  EXPECT_EQ(d.devices.size(), 1u);
  EXPECT_NE(d.note.find("Driver Not Loaded"), std::string::npos);
  script("devices=1");
  EXPECT_EQ(inventory->read().devices.size(), 2u);
}

TEST_F(InventoryTest, WithoutTheCudaModuleAGpuIsShownButNotUsed) {
  fs::remove(options.cuda_module);
  const Devices d = make_local_inventory(options)->read();
  ASSERT_EQ(d.devices.size(), 3u);
  EXPECT_FALSE(d.devices[1].schedulable);
  EXPECT_EQ(d.devices[1].health, DeviceHealth::kHealthy);
  EXPECT_NE(d.note.find("libtrainyard_cuda.so"), std::string::npos);
}

TEST_F(InventoryTest, F28ALostGpuIsUnknownAndTheOtherContinues) {
  script("devices=2,broken=1");
  const Devices d = make_local_inventory(options)->read();
  ASSERT_EQ(d.devices.size(), 3u);
  EXPECT_TRUE(d.devices[1].schedulable);
  EXPECT_EQ(d.devices[2].health, DeviceHealth::kUnknown);
  EXPECT_FALSE(d.devices[2].schedulable);
  EXPECT_NE(d.devices[2].reason.find("GPU is lost"), std::string::npos);
}

TEST_F(InventoryTest, F30DriverThatStopsAnsweringKeepsItsGpusAsUnknown) {
  const std::unique_ptr<Inventory> inventory = make_local_inventory(options);
  ASSERT_EQ(inventory->read().devices.size(), 3u);
  script("devices=2,count=15");
  const Devices d = inventory->read();
  ASSERT_EQ(d.devices.size(), 3u);
  EXPECT_EQ(d.devices[1].health, DeviceHealth::kUnknown);
  EXPECT_FALSE(d.devices[1].schedulable);
  EXPECT_TRUE(d.devices[0].schedulable);
  script("devices=2");
  EXPECT_TRUE(inventory->read().devices[1].schedulable);
}

// A GPU in MIG mode cannot run CUDA programs as a whole, so that each instance is a device.
TEST_F(InventoryTest, InstancesOfAGpuAreDevices) {
  script("devices=2,mig=2,xid=79,at=0");
  const Devices d = make_local_inventory(options)->read();
  ASSERT_EQ(d.devices.size(), 4u);
  EXPECT_EQ(d.devices[1].name, "devices/gpu-0-mig-0");
  EXPECT_EQ(d.devices[2].name, "devices/gpu-0-mig-2");
  EXPECT_EQ(d.devices[2].uuid, "MIG-0-2");
  EXPECT_EQ(d.devices[2].model, "NVIDIA H200 MIG 1g.18gb");
  EXPECT_EQ(d.devices[2].memory_bytes, int64_t{16} << 30);
  EXPECT_TRUE(d.devices[2].is_instance);
  EXPECT_EQ(d.devices[2].capability, 90) << "that of its GPU";
  EXPECT_EQ(d.devices[3].name, "devices/gpu-1");
  EXPECT_FALSE(d.devices[3].is_instance);
  EXPECT_NE(alike(d.devices[1]), alike(d.devices[2])) << "they cannot share a job";
  // The driver's report about the GPU applies to all of its instances.
  EXPECT_EQ(d.devices[1].health, DeviceHealth::kQuarantined);
  EXPECT_EQ(d.devices[2].health, DeviceHealth::kQuarantined);
  EXPECT_TRUE(d.devices[3].schedulable);
}

TEST_F(InventoryTest, AGpuInMigModeWithoutInstancesSaysWhatToDo) {
  script("devices=1,mig=-1");
  Devices d = make_local_inventory(options)->read();
  ASSERT_EQ(d.devices.size(), 2u);
  EXPECT_EQ(d.devices[1].name, "devices/gpu-0");
  EXPECT_FALSE(d.devices[1].schedulable);
  EXPECT_NE(d.devices[1].reason.find("has no instance; create one"), std::string::npos)
      << d.devices[1].reason;
  script("devices=1,mig=2");
  options.nvml_library = FAKE_OLD_NVML_LIBRARY;
  d = make_local_inventory(options)->read();
  ASSERT_EQ(d.devices.size(), 2u);
  EXPECT_FALSE(d.devices[1].schedulable);
  EXPECT_NE(d.devices[1].reason.find("cannot list"), std::string::npos) << d.devices[1].reason;
}

TEST_F(InventoryTest, HiddenGpusAreNotListed) {
  script("devices=3");
  options.visible_gpus = "2,GPU-0";
  Devices d = make_local_inventory(options)->read();
  ASSERT_EQ(d.devices.size(), 3u);
  EXPECT_EQ(d.devices[1].name, "devices/gpu-0") << "by the machine's numbers";
  EXPECT_EQ(d.devices[2].name, "devices/gpu-2");
  options.visible_gpus = "";
  d = make_local_inventory(options)->read();
  EXPECT_EQ(d.devices.size(), 1u);
  EXPECT_EQ(d.note, "No GPU: CUDA_VISIBLE_DEVICES= hides all GPUs from this server.");
}

TEST_F(InventoryTest, AHardwareXidQuarantinesItsGpuAlone) {
  const std::unique_ptr<Inventory> inventory = make_local_inventory(options);
  EXPECT_TRUE(inventory->read().devices[2].schedulable);
  script("devices=2,xid=79,at=1");
  Devices d = inventory->read();
  EXPECT_TRUE(d.devices[1].schedulable);
  EXPECT_EQ(d.devices[1].faults_reported, 0);
  EXPECT_FALSE(d.devices[2].schedulable);
  EXPECT_EQ(d.devices[2].health, DeviceHealth::kQuarantined);
  EXPECT_EQ(d.devices[2].reason,
            "Its driver reported XID 79: the GPU has fallen off the bus (hardware); reset it "
            "(nvidia-smi --gpu-reset) or the machine, then restart the server.");
  script("devices=2");
  d = inventory->read();
  EXPECT_EQ(d.devices[2].health, DeviceHealth::kQuarantined) << "until the server starts again";
  EXPECT_TRUE(make_local_inventory(options)->read().devices[2].schedulable);
}

TEST_F(InventoryTest, F29AnApplicationsXidAsksForACheck) {
  const std::unique_ptr<Inventory> inventory = make_local_inventory(options);
  (void)inventory->read();
  script("devices=2,xid=31,at=1");
  Devices d = inventory->read();
  EXPECT_TRUE(d.devices[2].schedulable);
  EXPECT_EQ(d.devices[2].faults_reported, 1);
  EXPECT_EQ(d.devices[1].faults_reported, 0);
  script("devices=2,xid=45,at=1");  // a consequence of Xid 31
  EXPECT_EQ(inventory->read().devices[2].faults_reported, 1);
  script("devices=2,xid=999,at=1");
  EXPECT_EQ(inventory->read().devices[2].faults_reported, 2) << "one that nobody knows";
}

TEST(Xid, HasAMessageAndAnEffect) {
  EXPECT_EQ(describe_xid(48).sentence, "XID 48: a double-bit ECC error (hardware)");
  EXPECT_EQ(describe_xid(48).effect, XidEffect::kReset);
  EXPECT_EQ(describe_xid(13).effect, XidEffect::kCheck);
  EXPECT_EQ(describe_xid(45).effect, XidEffect::kNone);
  EXPECT_EQ(describe_xid(7777).effect, XidEffect::kCheck);
  EXPECT_EQ(describe_xid(7777).sentence, "XID 7777, explained in NVIDIA's XID catalog");
}

Device gpu(int index) {
  Device d;
  d.name = "devices/gpu-" + std::to_string(index);
  d.kind = DeviceKind::kGpu;
  d.uuid = "GPU-" + std::to_string(index);
  return d;
}

class CheckedInventoryTest : public ::testing::Test {
 protected:
  CheckedInventoryTest() {
    auto inner = std::make_unique<FakeInventory>(Devices{{Device{}, gpu(0), gpu(1)}, ""});
    inner_ = inner.get();
    inventory_ = std::make_unique<CheckedInventory>(std::move(inner), clock_);
  }
  void start() {
    inventory_->start(
        [this](const Device& device, CheckedInventory::Done done) {
          running_.emplace_back(device.name, std::move(done));
        },
        [this] { ++changes_; });
  }
  /// Completes the oldest running check with `result`.
  void end(Result<CheckPassed> result = CheckPassed()) {
    const auto done = running_.front().second;
    running_.erase(running_.begin());
    done(std::move(result));
  }

  FakeClock clock_;
  FakeInventory* inner_;
  std::unique_ptr<CheckedInventory> inventory_;
  std::vector<std::pair<std::string, CheckedInventory::Done>> running_;
  int changes_ = 0;
};

TEST_F(CheckedInventoryTest, AGpuGetsJobsOnlyAfterItsCheck) {
  EXPECT_FALSE(inventory_->read().devices[1].schedulable);
  EXPECT_TRUE(inventory_->read().devices[0].schedulable) << "the CPU";
  start();
  ASSERT_EQ(running_.size(), 2U);
  EXPECT_EQ(running_[0].first, "devices/gpu-0");
  const Devices before = inventory_->read();
  EXPECT_EQ(running_.size(), 2U) << "it is checked once";
  EXPECT_TRUE(before.devices[1].checking);
  EXPECT_FALSE(before.devices[1].schedulable);
  EXPECT_NE(before.note.find("being checked"), std::string::npos) << before.note;
  end();
  EXPECT_EQ(changes_, 1);
  const Devices after = inventory_->read();
  EXPECT_TRUE(after.devices[1].schedulable);
  EXPECT_FALSE(after.devices[1].checking);
  EXPECT_FALSE(after.devices[2].schedulable);
  EXPECT_EQ(after.note, "");
}

TEST_F(CheckedInventoryTest, AFailedCheckQuarantinesAndIsTriedAgainLater) {
  start();
  end(make_error(ErrorCode::kFailedPrecondition, "DEVICE_CHECK_FAILED", "gpt2: wrong"));
  Devices d = inventory_->read();
  EXPECT_EQ(d.devices[1].health, DeviceHealth::kQuarantined);
  EXPECT_EQ(d.devices[1].reason, "It failed its check: gpt2: wrong.");
  EXPECT_FALSE(d.devices[1].schedulable || d.devices[1].checking);
  EXPECT_EQ(running_.size(), 1U);  // the check of the other GPU
  clock_.pass(CheckedInventory::kRetryUs);
  d = inventory_->read();
  EXPECT_TRUE(d.devices[1].checking);
  EXPECT_EQ(running_.size(), 2U);
}

TEST_F(CheckedInventoryTest, AGpuThatFailedAJobIsCheckedAgain) {
  start();
  end();
  end();
  inventory_->doubt("devices/gpu-1");
  inventory_->doubt("devices/gpu-7");
  const Devices d = inventory_->read();
  EXPECT_TRUE(d.devices[1].schedulable);
  EXPECT_TRUE(d.devices[2].checking);
  ASSERT_EQ(running_.size(), 1U);
  EXPECT_EQ(running_[0].first, "devices/gpu-1");
}

TEST_F(CheckedInventoryTest, AGpuWithADriverErrorIsCheckedAgain) {
  start();
  end();
  end();
  Device reported = gpu(1);
  reported.faults_reported = 1;
  inner_->set({{Device{}, gpu(0), reported}, ""});
  EXPECT_TRUE(inventory_->read().devices[2].checking);
  ASSERT_EQ(running_.size(), 1U);
  end();
  EXPECT_TRUE(inventory_->read().devices[2].schedulable) << "it is told of once";
  EXPECT_TRUE(running_.empty());
}

TEST_F(CheckedInventoryTest, ReservesTheMemoryOfAProcessAndAtLeastOneGibibyte) {
  constexpr int64_t kLeast = CheckedInventory::kOverheadLeastBytes;
  EXPECT_EQ(inventory_->read().devices[1].overhead_bytes, kLeast) << "before it is known";
  start();
  end(CheckPassed{kLeast + 700, ""});
  EXPECT_EQ(inventory_->read().devices[1].overhead_bytes, kLeast + 700);
  EXPECT_EQ(inventory_->read().devices[0].overhead_bytes, 0) << "the CPU";
  end(CheckPassed{kLeast - 700, ""});
  EXPECT_EQ(inventory_->read().devices[2].overhead_bytes, kLeast);
  inventory_->doubt("devices/gpu-0");
  EXPECT_EQ(inventory_->read().devices[1].overhead_bytes, kLeast + 700)
      << "while it is checked again";
  end(CheckPassed{3 * kLeast, ""});
  EXPECT_EQ(inventory_->read().devices[1].overhead_bytes, kLeast + 700)
      << "other jobs may have been on it this time";
}

TEST_F(CheckedInventoryTest, KeepsAQuarterOfASmallGpuFree) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  Device small = gpu(0);
  small.memory_bytes = 2048 * kMiB;
  Device larger = gpu(1);
  larger.memory_bytes = 4096 * kMiB;
  inner_->set({{Device{}, small, larger}, ""});
  EXPECT_EQ(inventory_->read().devices[1].overhead_bytes, 512 * kMiB);
  EXPECT_EQ(inventory_->read().devices[2].overhead_bytes, 1024 * kMiB);
  start();
  end(CheckPassed{600 * kMiB, ""});
  EXPECT_EQ(inventory_->read().devices[1].overhead_bytes, 600 * kMiB) << "it takes more";
}

TEST_F(CheckedInventoryTest, MemoryThatAnotherProcessTookDuringTheCheckIsNotCountedAsTheWorkers) {
  start();
  end(CheckPassed{CheckedInventory::kOverheadMostBytes + 1, ""});
  EXPECT_EQ(inventory_->read().devices[1].overhead_bytes, CheckedInventory::kOverheadLeastBytes);
}

TEST_F(CheckedInventoryTest, AGpuWithAdoptedJobsIsCheckedAfterTheyEnd) {
  inventory_->set_inherited("devices/gpu-0", true);
  inventory_->set_inherited("devices/gpu-0", true);
  inventory_->set_inherited("devices/gpu-1", true);
  start();
  EXPECT_TRUE(running_.empty());
  EXPECT_TRUE(inventory_->read().devices[1].schedulable) << "others have room beside them";
  inventory_->set_inherited("devices/gpu-0", false);
  EXPECT_TRUE(inventory_->read().devices[1].schedulable) << "one is still there";
  inventory_->set_inherited("devices/gpu-0", false);
  EXPECT_TRUE(inventory_->read().devices[1].checking);
  inventory_->doubt("devices/gpu-1");
  EXPECT_TRUE(inventory_->read().devices[2].checking) << "it failed one of them";
  EXPECT_EQ(running_.size(), 2U);
}

// Compute mode EXCLUSIVE_PROCESS: the GPU is healthy and available again when the other process
// ends.
TEST_F(CheckedInventoryTest, AGpuUsedByAnotherProcessIsBusyAndCheckedAgainSoon) {
  start();
  end(make_error(ErrorCode::kUnavailable, "DEVICE_BUSY", "another process has it"));
  end();
  Device busy = inventory_->read().devices[1];
  EXPECT_EQ(busy.health, DeviceHealth::kHealthy);
  EXPECT_TRUE(busy.busy);
  EXPECT_FALSE(busy.schedulable || busy.checking);
  EXPECT_EQ(busy.reason, "another process has it.");
  EXPECT_TRUE(running_.empty());
  clock_.pass(CheckedInventory::kBusyRetryUs);
  EXPECT_TRUE(inventory_->read().devices[1].checking);
  ASSERT_EQ(running_.size(), 1U);
  end();
  busy = inventory_->read().devices[1];
  EXPECT_TRUE(busy.schedulable);
  EXPECT_FALSE(busy.busy);
}

// A driver that was upgraded but not loaded, or a Fabric Manager that does not run.
TEST_F(CheckedInventoryTest, AGpuOfAHostOnWhichCudaDoesNotStartIsNotQuarantined) {
  start();
  end(make_error(ErrorCode::kFailedPrecondition, "HOST_FAULT", "error 802; start it"));
  end();
  Device gpu = inventory_->read().devices[1];
  EXPECT_EQ(gpu.health, DeviceHealth::kUnknown);
  EXPECT_EQ(gpu.reason, "A problem of this host, not of the GPU: error 802; start it.");
  EXPECT_FALSE(gpu.schedulable || gpu.checking || gpu.busy);
  EXPECT_TRUE(running_.empty());
  clock_.pass(CheckedInventory::kHostRetryUs);
  EXPECT_TRUE(inventory_->read().devices[1].checking) << "the host may be mended";
  ASSERT_EQ(running_.size(), 1U);
  end();
  gpu = inventory_->read().devices[1];
  EXPECT_TRUE(gpu.schedulable);
  EXPECT_EQ(gpu.health, DeviceHealth::kHealthy);
}

TEST_F(CheckedInventoryTest, AGpuWithAMissingLibraryIsDegradedAndGetsJobs) {
  start();
  end(CheckPassed{0, "libnvrtc.so.13 is missing."});
  const Device gpu = inventory_->read().devices[1];
  EXPECT_EQ(gpu.health, DeviceHealth::kDegraded);
  EXPECT_EQ(gpu.reason, "libnvrtc.so.13 is missing.");
  EXPECT_TRUE(gpu.schedulable);
}

TEST_F(CheckedInventoryTest, AnUnusableGpuIsNotChecked) {
  Device lost = gpu(0);
  lost.schedulable = false;
  lost.reason = "The driver does not answer.";
  inner_->set({{Device{}, lost}, "No GPU."});
  start();
  EXPECT_TRUE(running_.empty());
  EXPECT_EQ(inventory_->read().devices[1].reason, "The driver does not answer.");
  EXPECT_EQ(inventory_->read().note, "No GPU.");
}

TEST_F(CheckedInventoryTest, AnAnswerAfterTheEndIsIgnored) {
  start();
  inventory_->stop();
  end();
  EXPECT_EQ(changes_, 0);
  inventory_.reset();
  end();
}

TEST_F(InventoryTest, FakeAnswersAsConfigured) {
  FakeInventory fake({{Device{}}, "note"});
  EXPECT_EQ(fake.read().devices.size(), 1u);
  fake.set({});
  EXPECT_TRUE(fake.read().devices.empty());
}

}  // namespace
}  // namespace trainyard::server
