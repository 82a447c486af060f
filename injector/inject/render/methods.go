package render

// readingMethods are the methods that templates can call, beside those whose names begin with Get:
// they read, and give the same answer twice.
var readingMethods = []string{
	"AsDuration", "Cpu", "IsZero", "Memory", "MilliValue", "Pods", "ServiceCluster", "Storage",
	"StorageEphemeral", "String",
}

// shortTexts are the names of what is short whatever the data: enumerations and amounts.
var shortTexts = []string{"Cpu", "InterceptionMode", "Memory", "Storage", "StorageEphemeral"}

// refusedMethods are all others of the data's types: they change what they belong to, which is the
// mesh's for all pods, depend on the machine's time zone, or make no sense in a template. It is a
// list of names since the type of an expression is known only once it is executed. A test holds it
// complete.
var refusedMethods = map[string]bool{
	"AddDate": true, "After": true, "AppendBinary": true, "AppendFormat": true,
	"AppendText": true, "AsApproximateFloat64": true, "AsCanonicalBytes": true, "AsDec": true,
	"AsFloat64Slow": true, "AsInt64": true, "AsInterface": true, "AsMap": true, "AsScale": true,
	"AsSlice": true, "Before": true, "CanonicalizeBytes": true, "CheckValid": true, "Clock": true,
	"Cmp": true, "CmpInt64": true, "Compare": true, "Date": true, "Day": true, "DeepCopy": true,
	"DeepCopyInterface": true, "DeepCopyInto": true, "Descriptor": true, "Enum": true,
	"EnumDescriptor": true, "Equal": true, "ForSeeds": true, "GoString": true, "GobDecode": true,
	"GobEncode": true, "GroupVersionKind": true, "Hour": true, "ISOWeek": true, "In": true,
	"IntValue": true, "IsDST": true, "IsValid": true, "Local": true, "Location": true,
	"Marshal": true, "MarshalBinary": true, "MarshalCBOR": true, "MarshalJSON": true,
	"MarshalQueryParameter": true, "MarshalText": true, "MarshalTo": true,
	"MarshalToSizedBuffer": true, "MatchToleration": true, "Minute": true, "Month": true,
	"Mul": true, "Nanosecond": true, "Neg": true, "Number": true, "OpenAPIModelName": true,
	"OpenAPISchemaFormat": true, "OpenAPISchemaType": true, "OpenAPIV3OneOfTypes": true,
	"ProtoMessage": true, "ProtoReflect": true, "ProtoTime": true, "RandFill": true, "Read": true,
	"ReadAt": true, "Reset": true, "Rfc3339Copy": true, "Round": true, "RoundUp": true,
	"ScaledValue": true, "Second": true, "Set": true, "SetAnnotations": true,
	"SetCreationTimestamp": true, "SetDeletionGracePeriodSeconds": true,
	"SetDeletionTimestamp": true, "SetFinalizers": true, "SetGenerateName": true,
	"SetGeneration": true, "SetGroupVersionKind": true, "SetLabels": true,
	"SetManagedFields": true, "SetMilli": true, "SetName": true, "SetNamespace": true,
	"SetOwnerReferences": true, "SetRawBytes": true, "SetRawString": true,
	"SetResourceVersion": true, "SetScaled": true, "SetSelfLink": true, "SetUID": true,
	"Sign": true, "Size": true, "Sub": true, "SwaggerDoc": true, "ToDec": true,
	"ToUnstructured": true, "ToleratesTaint": true, "Truncate": true, "UTC": true, "Unix": true,
	"UnixMicro": true, "UnixMilli": true, "UnixNano": true, "Unmarshal": true,
	"UnmarshalBinary": true, "UnmarshalCBOR": true, "UnmarshalJSON": true,
	"UnmarshalQueryParameter": true, "UnmarshalText": true, "Weekday": true, "With": true,
	"Year": true, "YearDay": true, "Zone": true, "ZoneBounds": true,
}
