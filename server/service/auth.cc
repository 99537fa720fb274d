#include "server/service/auth.h"

#include <grpcpp/security/auth_metadata_processor.h>

#include <string>
#include <string_view>

#include "src/base/files.h"

namespace trainyard::server {
namespace {

constexpr std::string_view kScheme = "Bearer ";
constexpr int64_t kPemBytesMax = 1 << 20;

std::string_view view(const grpc::string_ref& text) { return {text.data(), text.size()}; }

Status check_header(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata,
                    const Token& token) {
  const auto it = metadata.find("authorization");
  if (it == metadata.end()) {
    return make_error(
        ErrorCode::kUnauthenticated, "CREDENTIALS_MISSING",
        "this server requires a token: send the metadata `authorization: Bearer TOKEN`");
  }
  const std::string_view value = view(it->second);
  if (!value.starts_with(kScheme) || !token.matches(value.substr(kScheme.size()))) {
    return make_error(ErrorCode::kUnauthenticated, "CREDENTIALS_INVALID", "the token is not valid");
  }
  return {};
}

/// Refuses calls that do not reach our handlers. Ours pass, because they answer with a reason.
class Gate final : public grpc::AuthMetadataProcessor {
 public:
  explicit Gate(const Token& token) : token_(token) {}
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext*, OutputMetadata*,
                       OutputMetadata*) override {
    const auto path = metadata.find(":path");
    if (path != metadata.end() && (view(path->second).starts_with("/grpc.health.v1.Health/") ||
                                   view(path->second).starts_with("/trainyard.v1."))) {
      return grpc::Status::OK;
    }
    if (check_header(metadata, token_).ok()) return grpc::Status::OK;
    return {grpc::StatusCode::UNAUTHENTICATED, "this server requires a token"};
  }

 private:
  const Token& token_;
};

}  // namespace

Status admit(const grpc::CallbackServerContext& context, const Token* token) {
  if (token == nullptr || context.peer().starts_with("unix:")) return {};
  return check_header(context.client_metadata(), *token);
}

Result<std::shared_ptr<grpc::ServerCredentials>> tcp_credentials(const Config& config,
                                                                 const Token* token) {
  if (config.tls_certificate.empty()) return grpc::InsecureServerCredentials();
  ASSIGN_OR_RETURN(std::string certificate, read_file(config.tls_certificate, kPemBytesMax));
  ASSIGN_OR_RETURN(std::string key, read_file(config.tls_key, kPemBytesMax));
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({std::move(key), std::move(certificate)});
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::SslServerCredentials(options);
  if (token != nullptr) credentials->SetAuthMetadataProcessor(std::make_shared<Gate>(*token));
  return credentials;
}

}  // namespace trainyard::server
