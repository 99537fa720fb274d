// Catches: NCCL that uses another network than the one on which the nodes have just connected, and
// an operator's setting that is overwritten.
#include "src/runtime/cuda/nccl_network.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <list>
#include <string>

#include "src/runtime/cuda/nccl_init.h"

namespace trainyard::cuda {
namespace {

/// A host's interfaces in the form in which the system lists them: one entry for each address.
class Host {
 public:
  void add(const char* name, const char* address) {
    sockaddr_storage& socket = sockets_.emplace_back();
    auto& v4 = reinterpret_cast<sockaddr_in&>(socket);
    auto& v6 = reinterpret_cast<sockaddr_in6&>(socket);
    if (::inet_pton(AF_INET, address, &v4.sin_addr) == 1) {
      v4.sin_family = AF_INET;
    } else {
      EXPECT_EQ(::inet_pton(AF_INET6, address, &v6.sin6_addr), 1) << address;
      v6.sin6_family = AF_INET6;
    }
    add_entry(name, reinterpret_cast<sockaddr*>(&socket));
  }
  void add_without_address(const char* name) { add_entry(name, nullptr); }
  std::string of(const std::string& address) const {
    return find_interface(entries_.empty() ? nullptr : &entries_.front(), address);
  }

 private:
  void add_entry(const char* name, sockaddr* address) {
    names_.emplace_back(name);
    ifaddrs& entry = entries_.emplace_back();
    entry.ifa_name = names_.back().data();
    entry.ifa_addr = address;
    if (entries_.size() > 1) std::prev(entries_.end(), 2)->ifa_next = &entry;
  }
  std::list<std::string> names_;
  std::list<sockaddr_storage> sockets_;
  std::list<ifaddrs> entries_;
};

TEST(NcclNetwork, TheInterfaceIsTheOneOfTheAddress) {
  Host host;
  EXPECT_EQ(host.of("10.0.0.7"), "");
  host.add_without_address("tun0");
  host.add("lo", "127.0.0.1");
  host.add("docker0", "172.17.0.1");
  host.add("eth0", "10.0.0.7");
  host.add("eth0:1", "10.0.0.8");  // a second address of the same interface
  host.add("ib0", "fd00::7");
  host.add("eth0", "fe80::1");
  EXPECT_EQ(host.of("10.0.0.7"), "eth0");
  EXPECT_EQ(host.of("10.0.0.8"), "eth0");
  EXPECT_EQ(host.of("127.0.0.1"), "lo");
  EXPECT_EQ(host.of("fd00:0:0::7"), "ib0");
  EXPECT_EQ(host.of("fe80::1%eth0"), "eth0");
  EXPECT_EQ(host.of("10.0.0.70"), "");
  EXPECT_EQ(host.of("node-7"), "");
}

TEST(NcclNetwork, WhatNcclsFilesSayIsFound) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("nccl-" + std::to_string(::getpid()))).string();
  std::ofstream(path) << "# of this site\nNCCL_SOCKET_IFNAME_2=x\n#NCCL_SOCKET_FAMILY=AF_INET\n"
                         "  NCCL_SOCKET_IFNAME = ib0\n";
  EXPECT_TRUE(is_set_in(path, "NCCL_SOCKET_IFNAME"));
  EXPECT_FALSE(is_set_in(path, "NCCL_SOCKET_FAMILY"));
  EXPECT_FALSE(is_set_in(path, "NCCL_SOCKET"));
  std::filesystem::remove(path);
  EXPECT_FALSE(is_set_in(path, "NCCL_SOCKET_IFNAME"));
}

/// Runs in a process of its own, since NCCL reads the settings only once.
int status_of_choice(const char* interface_before, const std::string& said, const char* after) {
  ::unsetenv("NCCL_SOCKET_FAMILY");
  ::unsetenv("NCCL_CONF_FILE");
  ::setenv("HOME", "/nonexistent", 1);
  ::unsetenv("NCCL_SOCKET_IFNAME");
  if (interface_before != nullptr) ::setenv("NCCL_SOCKET_IFNAME", interface_before, 1);
  const std::string chosen = choose_network("127.0.0.1");
  const char* const now = std::getenv("NCCL_SOCKET_IFNAME");
  const char* const family = std::getenv("NCCL_SOCKET_FAMILY");
  if (chosen != said || choose_network("127.0.0.1") != said) return 1;
  if (now == nullptr || std::string(now) != after) return 2;
  const bool sets_family = interface_before == nullptr;
  return (family != nullptr) == sets_family ? 0 : 3;
}

TEST(NcclNetworkDeathTest, AnOperatorsChoiceStays) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(std::_Exit(status_of_choice(nullptr, "lo (127.0.0.1)", "=lo")),
              ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(std::_Exit(status_of_choice("ib0", "the setting NCCL_SOCKET_IFNAME=ib0", "ib0")),
              ::testing::ExitedWithCode(0), "");
}

/// Checks that NCCL itself follows the setting, which needs no GPU.
int status_of_draw(const char* interface_before) {
  if (status_of_choice(
          interface_before,
          interface_before == nullptr ? "lo (127.0.0.1)" : "the setting NCCL_SOCKET_IFNAME=absent0",
          interface_before == nullptr ? "=lo" : interface_before) != 0) {
    return 1;
  }
  const auto id = draw_group_id(*open_nccl().value());
  if (!id.ok()) {
    const bool has_words = id.error().message.find("(NCCL error ") != std::string::npos;
    return id.error().reason == "RANKS_UNCONNECTED" && has_words ? 10 : 2;
  }
  // The id contains the interface's address, at which the other ranks connect.
  return id->size() == sizeof(ncclUniqueId) && id->find(std::string("\x7f\0\0\1", 4)) != id->npos
             ? 0
             : 3;
}

TEST(NcclNetworkDeathTest, NcclGoesThroughIt) {
  if (const auto nccl = open_nccl(); !nccl.ok()) GTEST_SKIP() << nccl.error().message;
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(std::_Exit(status_of_draw(nullptr)), ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(std::_Exit(status_of_draw("absent0")), ::testing::ExitedWithCode(10), "");
}

}  // namespace
}  // namespace trainyard::cuda
