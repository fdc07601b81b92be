//! The files of the dashboard. They contain no data: that comes from the admin API.

use bytes::Bytes;
use http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue, StatusCode};

use crate::http::response::{HttpResponse, typed};

/// A file of the dashboard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DashboardFile {
    path: &'static str,
    content_type: &'static str,
    content: &'static [u8],
}

/// The files. All but the page itself are built from `clients/dashboard`.
const FILES: [DashboardFile; 4] = [
    DashboardFile {
        path: "/",
        content_type: "text/html; charset=utf-8",
        content: include_bytes!("dashboard/assets/index.html"),
    },
    DashboardFile {
        path: "/dashboard.js",
        content_type: "text/javascript; charset=utf-8",
        content: include_bytes!("dashboard/assets/dashboard.js"),
    },
    DashboardFile {
        path: "/dashboard.css",
        content_type: "text/css; charset=utf-8",
        content: include_bytes!("dashboard/assets/dashboard.css"),
    },
    DashboardFile {
        path: "/favicon.svg",
        content_type: "image/svg+xml",
        content: include_bytes!("dashboard/assets/favicon.svg"),
    },
];

impl DashboardFile {
    /// The file at a path.
    pub(crate) fn at(path: &str) -> Option<Self> {
        FILES.into_iter().find(|file| file.path == path)
    }

    /// The file as a response. Nothing in it may come from elsewhere, nor go elsewhere.
    pub(crate) fn response(self) -> HttpResponse {
        let content_type = HeaderValue::from_static(self.content_type);
        let mut response = typed(StatusCode::OK, content_type, Bytes::from_static(self.content));
        let headers = response.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
        headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
        response
    }
}

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Scripts, styles and data of this origin alone, none of them inline, and no frame around the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      img-src 'self' data:; connect-src 'self'; form-action 'none'; \
                      base-uri 'none'; frame-ancestors 'none'";
