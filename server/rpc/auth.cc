#include "server/rpc/auth.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/rpc/admitted_peers.h"
#include "server/rpc/tls_files.h"
#include "src/base/mutex.h"
#include "src/base/person_name.h"

namespace trainyard::server {
namespace {

constexpr std::string_view kScheme = "Bearer ";
constexpr const char* kUserProperty = "trainyard_user";
constexpr const char* kOwnerProperty = "trainyard_owns_daemon";
constexpr const char* kTokenHeader = "authorization";
constexpr const char* kActingForHeader = "trainyard-acting-for";

using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

std::string_view view(const grpc::string_ref& text) { return {text.data(), text.size()}; }

/// Returns the header's value; empty if it was not sent.
std::string_view header(const Metadata& metadata, const char* name) {
  const auto it = metadata.find(name);
  return it == metadata.end() ? std::string_view() : view(it->second);
}

/// Returns whose token the call has.
Result<Principal> check_token(const Metadata& metadata, const People& people) {
  if (!metadata.contains(kTokenHeader)) {
    return make_error(ErrorCode::kUnauthenticated, "CREDENTIALS_MISSING",
                      "this server requires a token: 'trainyard login' stores one; other clients "
                      "send the metadata `authorization: Bearer TOKEN`");
  }
  const std::string_view value = header(metadata, kTokenHeader);
  if (!value.starts_with(kScheme)) {
    return make_error(ErrorCode::kUnauthenticated, "CREDENTIALS_INVALID",
                      "the metadata `authorization` is not of the form `Bearer TOKEN`");
  }
  return people.find_by_token(value.substr(kScheme.size()), header(metadata, kActingForHeader));
}

/// Returns the connection's property; empty if it has none of this name.
std::string property(const grpc::CallbackServerContext& context, const char* name) {
  const std::shared_ptr<const grpc::AuthContext> marks = context.auth_context();
  const std::vector<grpc::string_ref> values =
      marks ? marks->FindPropertyValues(name) : std::vector<grpc::string_ref>();
  return values.empty() ? std::string() : std::string(view(values.front()));
}

/// Refuses calls without a token to methods that are not ours. Calls to our handlers pass, because
/// the handlers check the token themselves and return an error with a reason.
class Gate final : public grpc::AuthMetadataProcessor {
 public:
  explicit Gate(const People& people) : people_(people) {}
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext*, OutputMetadata*,
                       OutputMetadata*) override {
    const auto path = metadata.find(":path");
    if (path != metadata.end() && (view(path->second).starts_with("/grpc.health.v1.Health/") ||
                                   view(path->second).starts_with("/trainyard.v1."))) {
      return grpc::Status::OK;
    }
    if (check_token(metadata, people_).ok()) return grpc::Status::OK;
    return {grpc::StatusCode::UNAUTHENTICATED, "this server requires a token"};
  }

 private:
  const People& people_;
};

/// Refuses calls of services that are not for workers, such as reflection, which gRPC's plugin adds
/// to every server of the process.
class WorkersGate final : public grpc::AuthMetadataProcessor {
 public:
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext*, OutputMetadata*,
                       OutputMetadata*) override {
    const auto path = metadata.find(":path");
    if (path != metadata.end() && view(path->second).starts_with("/trainyard.v1.WorkerService/")) {
      return grpc::Status::OK;
    }
    return {grpc::StatusCode::UNIMPLEMENTED, "this port serves only the calls of workers"};
  }
};

/// Attaches the user to calls. gRPC's context belongs to the connection, so the properties are
/// added only once.
class UserMark final : public grpc::AuthMetadataProcessor {
 public:
  explicit UserMark(std::shared_ptr<const SocketUser> user) : user_(std::move(user)) {}
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata&, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const MutexLock lock(mu_);
    if (context->FindPropertyValues(kUserProperty).empty()) {
      context->AddProperty(kUserProperty, user_->name);
      if (user_->owns_daemon) context->AddProperty(kOwnerProperty, "yes");
    }
    return grpc::Status::OK;
  }

 private:
  const std::shared_ptr<const SocketUser> user_;
  Mutex mu_;  // protects the contexts' properties, which gRPC does not protect
};

}  // namespace

bool is_local(const grpc::CallbackServerContext& context) {
  return !property(context, kUserProperty).empty();
}

Result<Principal> admit(const grpc::CallbackServerContext& context, People& people) {
  const Metadata& metadata = context.client_metadata();
  const std::string user = property(context, kUserProperty);
  Result<Principal> caller =
      user.empty() || metadata.contains(kTokenHeader)
          ? check_token(metadata, people)
          : people.find_by_user(user, !property(context, kOwnerProperty).empty(),
                                header(metadata, kActingForHeader));
  if (!caller.ok()) return caller;
  if (user.empty()) admitted_peers().admit(context.peer());
  people.note_call(*caller);
  return caller;
}

SocketUser socket_user(uid_t uid) {
  std::vector<char> buffer(16 << 10);
  passwd entry{};
  passwd* found = nullptr;
  const bool known =
      ::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr;
  std::string name = known ? found->pw_name : "";
  if (!is_person_name(name)) name = "uid:" + std::to_string(uid);
  return {std::move(name), uid == 0 || uid == ::geteuid()};
}

std::shared_ptr<grpc::ServerCredentials> user_credentials(std::shared_ptr<const SocketUser> user) {
  std::shared_ptr<grpc::ServerCredentials> credentials = nameless_credentials();
  credentials->SetAuthMetadataProcessor(std::make_shared<UserMark>(std::move(user)));
  return credentials;
}

std::shared_ptr<grpc::ServerCredentials> nameless_credentials() {
  // Local credentials send nothing over the socket, so clients need no matching credentials.
  return grpc::experimental::LocalServerCredentials(UDS);
}

Result<std::shared_ptr<grpc::ServerCredentials>> tcp_credentials(const Config& config,
                                                                 const People& people) {
  if (config.tls_certificate.empty()) return grpc::InsecureServerCredentials();
  ASSIGN_OR_RETURN(std::shared_ptr<grpc::ServerCredentials> credentials, tls_credentials(config));
  credentials->SetAuthMetadataProcessor(token_gate(people));
  return credentials;
}

std::shared_ptr<grpc::AuthMetadataProcessor> token_gate(const People& people) {
  return std::make_shared<Gate>(people);
}

std::shared_ptr<grpc::ServerCredentials> front_workers_credentials() {
  std::shared_ptr<grpc::ServerCredentials> credentials = nameless_credentials();
  credentials->SetAuthMetadataProcessor(std::make_shared<WorkersGate>());
  return credentials;
}

std::shared_ptr<grpc::ServerCredentials> workers_credentials(const std::string& key,
                                                             const std::string& certificate) {
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({key, certificate});
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::SslServerCredentials(options);
  credentials->SetAuthMetadataProcessor(std::make_shared<WorkersGate>());
  return credentials;
}

}  // namespace trainyard::server
