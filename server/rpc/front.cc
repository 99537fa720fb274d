#include "server/rpc/front.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "server/rpc/auth.h"
#include "src/base/mutex.h"

namespace trainyard::server {
namespace {

constexpr const char* kFrontProperty = "trainyard_front";
constexpr const char* kAddressHeader = "x-forwarded-for";

/// Marks calls as those of the front end. gRPC's context belongs to the connection, so the property
/// is added only once.
class FrontMark final : public grpc::AuthMetadataProcessor {
 public:
  explicit FrontMark(std::shared_ptr<grpc::AuthMetadataProcessor> gate) : gate_(std::move(gate)) {}
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata* response) override {
    {
      const MutexLock lock(mu_);
      if (context->FindPropertyValues(kFrontProperty).empty()) {
        context->AddProperty(kFrontProperty, "yes");
      }
    }
    return gate_->Process(metadata, context, consumed, response);
  }

 private:
  const std::shared_ptr<grpc::AuthMetadataProcessor> gate_;
  Mutex mu_;  // protects the contexts' properties, which gRPC does not protect
};

bool is_from_front(const grpc::CallbackServerContext& context) {
  const std::shared_ptr<const grpc::AuthContext> marks = context.auth_context();
  return marks && !marks->FindPropertyValues(kFrontProperty).empty();
}

bool is_ip_address(const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return ::inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
}

/// Returns the address that the front end names. It sets the header to one address; if there are
/// several, a client sent the others.
std::string forwarded_address(const grpc::CallbackServerContext& context) {
  const auto [first, last] = context.client_metadata().equal_range(kAddressHeader);
  if (first == last) return {};
  const grpc::string_ref& newest = std::prev(last)->second;
  std::string text(newest.data(), newest.size());
  text.erase(0, text.rfind(',') + 1);  // npos + 1 is 0
  std::erase(text, ' ');
  return is_ip_address(text) ? text : std::string();
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> front_credentials(
    std::shared_ptr<grpc::AuthMetadataProcessor> gate) {
  std::shared_ptr<grpc::ServerCredentials> credentials = nameless_credentials();
  credentials->SetAuthMetadataProcessor(std::make_shared<FrontMark>(std::move(gate)));
  return credentials;
}

std::string address_of(const grpc::CallbackServerContext& context) {
  if (is_from_front(context)) {
    std::string address = forwarded_address(context);
    return address.empty() ? "front end" : address;
  }
  const std::string peer = context.peer();
  if (peer.starts_with("unix:")) return "unix";
  const size_t colon = peer.find(':');
  std::string address = colon == std::string::npos ? peer : peer.substr(colon + 1);
  for (const auto& [escape, sign] : {std::pair("%5B", "["), std::pair("%5D", "]")}) {
    if (const size_t at = address.find(escape); at != std::string::npos) {
      address.replace(at, 3, sign);
    }
  }
  return address;
}

}  // namespace trainyard::server
