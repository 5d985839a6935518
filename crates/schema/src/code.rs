//! What can be wrong with a tool's schema: every kind once, with its code, its meaning and how bad it is.
//!
//! The codes are stable: logs and metrics name them. Codes that are missing here belong to faults that this version
//! does not look for.

/// How bad a fault is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Some clients make less of the tool.
    Warning,
    /// A major client refuses the tool, or all tools of its server.
    Error,
}

macro_rules! codes {
    ($($code:ident $severity:ident $meaning:literal,)*) => {
        /// A kind of fault in a tool's schema.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Code { $(#[doc = $meaning] $code,)* }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Code] = &[$(Code::$code,)*];

            /// The code itself, such as `S003`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$code => stringify!($code),)* }
            }

            /// What is wrong.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$code => $meaning,)* }
            }

            /// How bad it is.
            pub fn severity(self) -> Severity {
                match self { $(Self::$code => Severity::$severity,)* }
            }
        }
    };
}

codes! {
    S001 Error "`inputSchema` is missing or no object",
    S002 Error "the `type` of the arguments is missing or not `object`",
    S003 Error "`properties`, or another map of schemas, is no object",
    S005 Error "something else where a schema has to stand, such as a list of words",
    S007 Error "`required` is no list of different names",
    S008 Error "a `type` that JSON Schema does not know",
    S009 Error "`exclusiveMinimum` or `exclusiveMaximum` as a yes or no",
    S015 Error "`outputSchema` is no object",
    S022 Error "`additionalProperties` is neither a schema nor a yes or no",
    S025 Warning "a tool that is too large, or nested too deep, to be looked at",
    S031 Error "a keyword with a value of the wrong kind, such as null",
}
