// server/rpc/tls_files.h: the certificate and the key of the TCP listener.
//
// gRPC reads the files again when they change: connections made afterwards get the new certificate,
// those that are open stay.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <optional>
#include <string>

#include "server/config/config.h"
#include "src/base/result.h"

namespace trainyard::server {

struct TlsFiles {
  std::string certificate, key;        // PEM
  std::string summary;                 // "CN = gpu1.example, until 2027-01-31"
  std::optional<std::string> warning;  // the certificate is not valid now
};

/// Reads tls_certificate and tls_key, and checks that they belong together. Errors: file system
/// errors; INVALID_ARGUMENT/TLS_FILE_INVALID, which name the setting and the file.
Result<TlsFiles> read_tls_files(const Config& config);

/// Returns credentials of a listener with these files. The errors of read_tls_files().
Result<std::shared_ptr<grpc::ServerCredentials>> tls_credentials(const Config& config);

}  // namespace trainyard::server
