#include "server/rpc/auth.h"

#include <grpcpp/security/auth_metadata_processor.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/rpc/admitted_peers.h"
#include "server/rpc/tls_files.h"
#include "src/base/files.h"
#include "src/base/mutex.h"

namespace trainyard::server {
namespace {

constexpr std::string_view kScheme = "Bearer ";
constexpr const char* kUserProperty = "trainyard_user";

std::string_view view(const grpc::string_ref& text) { return {text.data(), text.size()}; }

/// Returns the name that belongs to the call's token.
Result<std::string> check_header(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata,
                                 const Tokens& tokens) {
  const auto it = metadata.find("authorization");
  if (it == metadata.end()) {
    return make_error(
        ErrorCode::kUnauthenticated, "CREDENTIALS_MISSING",
        "this server requires a token: send the metadata `authorization: Bearer TOKEN`");
  }
  const std::string_view value = view(it->second);
  const std::string* name =
      value.starts_with(kScheme) ? tokens.find_name(value.substr(kScheme.size())) : nullptr;
  if (name == nullptr) {
    return make_error(ErrorCode::kUnauthenticated, "CREDENTIALS_INVALID", "the token is not valid");
  }
  return *name;
}

/// Refuses calls without a token to methods that are not ours. Calls to our handlers pass, because
/// the handlers check the token themselves and return an error with a reason.
class Gate final : public grpc::AuthMetadataProcessor {
 public:
  explicit Gate(const Tokens& tokens) : tokens_(tokens) {}
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext*, OutputMetadata*,
                       OutputMetadata*) override {
    const auto path = metadata.find(":path");
    if (path != metadata.end() && (view(path->second).starts_with("/grpc.health.v1.Health/") ||
                                   view(path->second).starts_with("/trainyard.v1."))) {
      return grpc::Status::OK;
    }
    if (check_header(metadata, tokens_).ok()) return grpc::Status::OK;
    return {grpc::StatusCode::UNAUTHENTICATED, "this server requires a token"};
  }

 private:
  const Tokens& tokens_;
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

/// Attaches the user's name to calls. gRPC's context belongs to the connection, so the property is
/// added only once.
class UserMark final : public grpc::AuthMetadataProcessor {
 public:
  explicit UserMark(std::shared_ptr<const std::string> name) : name_(std::move(name)) {}
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata&, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const MutexLock lock(mu_);
    if (context->FindPropertyValues(kUserProperty).empty()) {
      context->AddProperty(kUserProperty, *name_);
    }
    return grpc::Status::OK;
  }

 private:
  const std::shared_ptr<const std::string> name_;
  Mutex mu_;  // protects the contexts' properties, which gRPC does not protect
};

bool is_local(const grpc::CallbackServerContext& context) {
  return context.peer().starts_with("unix:");
}

}  // namespace

Status admit(const grpc::CallbackServerContext& context, const Tokens* tokens) {
  if (is_local(context)) return {};
  if (tokens != nullptr) {
    if (auto name = check_header(context.client_metadata(), *tokens); !name.ok()) {
      return std::move(name).error();
    }
  }
  admitted_peers().admit(context.peer());
  return {};
}

std::string caller_of(const grpc::CallbackServerContext& context, const Tokens* tokens) {
  if (is_local(context)) {
    const std::shared_ptr<const grpc::AuthContext> marks = context.auth_context();
    const std::vector<grpc::string_ref> names =
        marks ? marks->FindPropertyValues(kUserProperty) : std::vector<grpc::string_ref>();
    return names.empty() ? kAnonymous : std::string(view(names.front()));
  }
  if (tokens == nullptr) return kAnonymous;
  const Result<std::string> name = check_header(context.client_metadata(), *tokens);
  return name.ok() ? *name : kAnonymous;
}

std::string user_name(uid_t uid) {
  std::vector<char> buffer(16 << 10);
  passwd entry{};
  passwd* found = nullptr;
  const bool known =
      ::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr;
  const std::string_view name = known ? found->pw_name : "";
  const bool plain = !name.empty() && name.size() <= 256 &&
                     std::ranges::all_of(name, [](char c) { return c > 0x20 && c < 0x7f; });
  return plain ? std::string(name) : "uid:" + std::to_string(uid);
}

std::shared_ptr<grpc::ServerCredentials> user_credentials(std::shared_ptr<const std::string> name) {
  // Local credentials send nothing over the socket, so clients need no matching credentials.
  std::shared_ptr<grpc::ServerCredentials> credentials =
      grpc::experimental::LocalServerCredentials(UDS);
  credentials->SetAuthMetadataProcessor(std::make_shared<UserMark>(std::move(name)));
  return credentials;
}

Result<std::shared_ptr<grpc::ServerCredentials>> tcp_credentials(const Config& config,
                                                                 const Tokens* tokens) {
  if (config.tls_certificate.empty()) return grpc::InsecureServerCredentials();
  ASSIGN_OR_RETURN(TlsFiles files, read_tls_files(config));
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({std::move(files.key), std::move(files.certificate)});
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::SslServerCredentials(options);
  if (tokens != nullptr) credentials->SetAuthMetadataProcessor(std::make_shared<Gate>(*tokens));
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
